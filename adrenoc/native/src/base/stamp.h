// Which version of the runtime this is.
#ifndef ADRENOC_NATIVE_BASE_STAMP_H_
#define ADRENOC_NATIVE_BASE_STAMP_H_

namespace adrenoc_runtime {

// Versions of adrenoc and of TVM, and what the sources were.
[[nodiscard]] const char* stamp();

}  // namespace adrenoc_runtime

#endif  // ADRENOC_NATIVE_BASE_STAMP_H_
