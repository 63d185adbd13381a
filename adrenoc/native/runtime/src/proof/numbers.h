// Single numbers of dense tensors, by the name of their dtype.
#pragma once

#include <cstdint>
#include <string>

namespace adrenoc_runtime {

struct Dtype {
  const char* name;
  uint64_t bytes;
  double (*read)(const char* at);
  void (*write)(double number, char* at);

  [[nodiscard]] double number_at(uint64_t index, const char* data) const {
    return read(data + index * bytes);
  }
};

// Throws Failure (bad bundle), with the place, for a dtype whose numbers are not known here.
[[nodiscard]] const Dtype& dtype_of(const std::string& name, const std::string& where);

// In short, for messages.
[[nodiscard]] std::string to_text(double number);

}  // namespace adrenoc_runtime
