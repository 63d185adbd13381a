// Dtypes of dense tensors, and single numbers of theirs.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "adrenoc.h"
#include "base/half.h"

namespace adrenoc_runtime {

struct Dtype {
  std::string_view name;    // TVM's
  std::string_view stored;  // that of safetensors
  adrenoc_dtype number;     // ONNX's
  uint64_t bytes;
  double (*read)(const char* at);  // null where numbers are not known here, as the next
  void (*write)(double number, char* at);

  [[nodiscard]] double number_at(uint64_t index, const char* data) const {
    return read(data + index * bytes);
  }
};

template <typename Element>
double read_as(const char* at) {
  Element element;
  std::memcpy(&element, at, sizeof(element));
  return static_cast<double>(element);
}

template <>
inline double read_as<Half>(const char* at) {
  Half element;
  std::memcpy(&element, at, sizeof(element));
  return number_of(element);
}

template <typename Element>
void write_as(double number, char* at) {
  const auto element = static_cast<Element>(number);
  std::memcpy(at, &element, sizeof(element));
}

template <>
inline void write_as<Half>(double number, char* at) {
  const Half element = nearest_half(number);
  std::memcpy(at, &element, sizeof(element));
}

template <typename Element>
constexpr Dtype make_dtype(std::string_view name, std::string_view stored, adrenoc_dtype number) {
  return {name, stored, number, sizeof(Element), read_as<Element>, write_as<Element>};
}

constexpr Dtype kDtypes[] = {
    make_dtype<float>("float32", "F32", ADRENOC_FLOAT32),
    make_dtype<Half>("float16", "F16", ADRENOC_FLOAT16),
    {"bfloat16", "BF16", ADRENOC_DTYPE_UNKNOWN, 2, nullptr, nullptr},
    make_dtype<double>("float64", "F64", ADRENOC_FLOAT64),
    make_dtype<int8_t>("int8", "I8", ADRENOC_INT8),
    make_dtype<int16_t>("int16", "I16", ADRENOC_INT16),
    make_dtype<int32_t>("int32", "I32", ADRENOC_INT32),
    make_dtype<int64_t>("int64", "I64", ADRENOC_INT64),
    make_dtype<uint8_t>("uint8", "U8", ADRENOC_UINT8),
    make_dtype<uint16_t>("uint16", "U16", ADRENOC_UINT16),
    make_dtype<uint32_t>("uint32", "U32", ADRENOC_UINT32),
    make_dtype<uint64_t>("uint64", "U64", ADRENOC_UINT64),
    make_dtype<uint8_t>("bool", "BOOL", ADRENOC_BOOL),
};

// By TVM's name; null for another one.
[[nodiscard]] inline const Dtype* find_dtype(std::string_view name) {
  for (const Dtype& dtype : kDtypes) {
    if (name == dtype.name) return &dtype;
  }
  return nullptr;
}

}  // namespace adrenoc_runtime
