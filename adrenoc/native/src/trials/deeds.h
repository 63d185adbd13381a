// Times, by the host's clock, of what a run does beside computing: copies to and from the device,
// arguments, launches one by one and recorded; and whether what they bring is right.
#ifndef ADRENOC_NATIVE_TRIALS_DEEDS_H_
#define ADRENOC_NATIVE_TRIALS_DEEDS_H_

#include <tvm/ffi/extra/json.h>

#include "opencl/device.h"

namespace adrenoc_runtime {
namespace opencl {

// Does each deed once, then all in turn several times.  A deed is one of
//     {"deed": "copy", "way": WAY, "bytes": N}      N bytes to the device or back
//     {"deed": "arguments", "count": N}             N arguments of a kernel that are set
//     {"deed": "launches", "way": WAY, "count": N}  N small kernels, until the last has ended
//     {"deed": "hint", "hint": "performance" | "priority"}  one kernel on a device made with it
//     {"deed": "large", "bytes": N}                 one kernel on both ends of such a buffer
// where the ways of copies are write, read, map_write, map_read, own_write, own_read, image_write
// and image_read, and those of launches queue, recording and command_buffer.  Returns what
// `measure_candidates` does.  Throws RefusedCandidate: "refused" with the reason why a deed cannot
// be done here, "wrong" where it brings other numbers; RuntimeError where the device fails.
[[nodiscard]] tvm::ffi::json::Object measure_deeds(Device& device,
                                                   const tvm::ffi::json::Array& deeds);

}  // namespace opencl
}  // namespace adrenoc_runtime

#endif  // ADRENOC_NATIVE_TRIALS_DEEDS_H_
