// Takes apart what was compressed by DEFLATE (RFC 1951).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace adrenoc_runtime {

// The content of the file `name`, which is stored as `deflated` and has to have `bytes`.
// Throws Failure (bad bundle) where that is not so.
[[nodiscard]] std::string inflate(std::string_view deflated, uint64_t bytes,
                                  const std::string& name);

}  // namespace adrenoc_runtime
