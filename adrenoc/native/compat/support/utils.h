// Two tests on strings, by the names that TVM's runtime sources expect.
// The TVM wheel ships sources that include this file but not the file itself.
#pragma once

#include <tvm/ffi/string.h>

#include <cstring>
#include <string>

namespace tvm::support {

// True for one decimal digit or more and nothing else.
inline bool IsNumber(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

inline bool StartsWith(const ffi::String& text, const char* prefix) {
  const size_t length = std::strlen(prefix);
  return text.size() >= length && std::memcmp(text.data(), prefix, length) == 0;
}

}  // namespace tvm::support
