// How far a kernel's output is from what it should be.
#pragma once

#include <dlpack/dlpack.h>

#include <cstddef>

namespace adrenoc_runtime {

// The largest difference of two dense tensors of `elements`, over the largest finite value that is
// wanted; infinite where one has a NaN or an infinity and the other has none.  Of `kDLUInt` with 8
// bits, which are quanta, it is over 255.  Throws ValueError for a type that no kernel writes.
[[nodiscard]] double output_difference(const void* got, const void* wanted, size_t elements,
                                       DLDataType type);

}  // namespace adrenoc_runtime
