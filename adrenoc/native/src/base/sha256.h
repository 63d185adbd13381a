// SHA-256 (FIPS 180-4).
#pragma once

#include <string>
#include <string_view>

namespace adrenoc_runtime {

// In lower-case hexadecimal.
[[nodiscard]] std::string sha256_hex(std::string_view data);

}  // namespace adrenoc_runtime
