// Which version of the runtime this is.
#pragma once

namespace adrenoc_runtime {

// Versions of adrenoc and of TVM, and what the sources were.
[[nodiscard]] const char* stamp();

}  // namespace adrenoc_runtime
