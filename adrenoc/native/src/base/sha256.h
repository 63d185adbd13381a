// SHA-256 (FIPS 180-4).
#ifndef ADRENOC_NATIVE_BASE_SHA256_H_
#define ADRENOC_NATIVE_BASE_SHA256_H_

#include <string>
#include <string_view>

namespace adrenoc_runtime {

// In lower-case hexadecimal.
[[nodiscard]] std::string sha256_hex(std::string_view data);

}  // namespace adrenoc_runtime

#endif  // ADRENOC_NATIVE_BASE_SHA256_H_
