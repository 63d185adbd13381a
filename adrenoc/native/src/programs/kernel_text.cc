#include "programs/kernel_text.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <sstream>

namespace adrenoc_runtime::opencl {
namespace {

constexpr const char* kFunction = "// Function: ";
constexpr const char* kProgram = "// Program: ";
constexpr const char* kConstants = "// Constants: ";

// The rest of the line at `*at` if it begins with `begin`, which is then passed.
bool take_line(const std::string& text, const char* begin, size_t* at, std::string* rest) {
  const size_t length = std::strlen(begin);
  if (text.compare(*at, length, begin) != 0) return false;
  const size_t end = std::min(text.find('\n', *at), text.size());
  *rest = text.substr(*at + length, end - *at - length);
  *at = std::min(end + 1, text.size());
  return true;
}

template <typename T>
KernelConstant constant_of(T value) {
  KernelConstant constant{sizeof(T), {}};
  std::memcpy(constant.value.data(), &value, sizeof(T));
  return constant;
}

// "int 14" or "float 2.5e-1f".
KernelConstant read_constant(const std::string& name, const std::string& text) {
  const size_t space = text.find(' ');
  const std::string type = text.substr(0, space);
  const std::string number = space == text.npos ? "" : text.substr(space + 1);
  char* end = nullptr;
  errno = 0;
  if (type == "int") {
    const long long value = std::strtoll(number.c_str(), &end, 10);
    const bool fits = errno == 0 && value >= std::numeric_limits<int32_t>::min() &&
                      value <= std::numeric_limits<int32_t>::max();
    if (!number.empty() && *end == '\0' && fits) return constant_of(static_cast<int32_t>(value));
  } else if (type == "float") {
    const float value = std::strtof(number.c_str(), &end);
    if (!number.empty() && std::strcmp(end, "f") == 0) return constant_of(value);
  }
  TVM_FFI_THROW(ValueError) << "Kernel " << name << " has the constant \"" << text
                            << "\"; expected \"int NUMBER\" or \"float NUMBERf\"";
  TVM_FFI_UNREACHABLE();
}

// "__read_only image2d_array_t a" declares an image.
bool is_image(const std::string& parameter) {
  std::istringstream words(parameter);
  for (std::string word; words >> word;) {
    const bool ends = word.size() > 2 && word.compare(word.size() - 2, 2, "_t") == 0;
    if (ends && word.rfind("image", 0) == 0) return true;
  }
  return false;
}

}  // namespace

std::map<std::string, std::string> split_kernels(const std::string& source) {
  const std::string marker = kFunction;
  std::map<std::string, std::string> kernels;
  size_t start = source.find(marker);
  while (start != std::string::npos) {
    const size_t name_start = start + marker.size();
    const size_t line_end = std::min(source.find('\n', name_start), source.size());
    const size_t next = source.find(marker, line_end);
    const size_t text = std::min(line_end + 1, source.size());
    kernels[source.substr(name_start, line_end - name_start)] =
        source.substr(text, next == std::string::npos ? next : next - text);
    start = next;
  }
  return kernels;
}

bool has_own_text(const std::map<std::string, std::string>& sections, const std::string& name) {
  const auto found = sections.find(name);
  return found != sections.end() && found->second.rfind(kProgram, 0) != 0;
}

KernelText read_kernel_text(const std::string& name, const std::string& section) {
  KernelText text{name, {}, {}};
  size_t at = 0;
  take_line(section, kProgram, &at, &text.program);
  std::string constants;
  if (!take_line(section, kConstants, &at, &constants)) return text;
  for (size_t start = 0; start < constants.size();) {
    const size_t end = std::min(constants.find(", ", start), constants.size());
    text.constants.push_back(read_constant(name, constants.substr(start, end - start)));
    start = end + 2;
  }
  return text;
}

std::vector<bool> read_image_arguments(const std::string& kernel, const std::string& text) {
  const size_t begin = text.find(" " + kernel + "(", std::min(text.find("__kernel"), text.size()));
  if (begin == text.npos) return {};
  const size_t first = text.find('(', begin) + 1;
  const size_t end = text.find(')', first);
  if (end == text.npos) return {};
  std::vector<bool> images;
  std::istringstream parameters(text.substr(first, end - first));
  for (std::string parameter; std::getline(parameters, parameter, ',');) {
    images.push_back(is_image(parameter));
  }
  return images;
}

}  // namespace adrenoc_runtime::opencl
