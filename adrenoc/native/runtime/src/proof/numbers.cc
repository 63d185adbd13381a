#include "proof/numbers.h"

#include <cstdio>
#include <cstring>

#include "base/failure.h"
#include "base/half.h"

namespace adrenoc_runtime {
namespace {

template <typename Element>
double read_as(const char* at) {
  Element element;
  std::memcpy(&element, at, sizeof(element));
  return static_cast<double>(element);
}

template <>
double read_as<Half>(const char* at) {
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
void write_as<Half>(double number, char* at) {
  const Half element = exact_half(number);
  std::memcpy(at, &element, sizeof(element));
}

template <typename Element>
constexpr Dtype make_dtype(const char* name) {
  return {name, sizeof(Element), read_as<Element>, write_as<Element>};
}

constexpr Dtype kDtypes[] = {
    make_dtype<float>("float32"),   make_dtype<Half>("float16"),    make_dtype<double>("float64"),
    make_dtype<int8_t>("int8"),     make_dtype<int16_t>("int16"),   make_dtype<int32_t>("int32"),
    make_dtype<int64_t>("int64"),   make_dtype<uint8_t>("uint8"),   make_dtype<uint16_t>("uint16"),
    make_dtype<uint32_t>("uint32"), make_dtype<uint64_t>("uint64"), make_dtype<uint8_t>("bool"),
};

}  // namespace

const Dtype& dtype_of(const std::string& name, const std::string& where) {
  for (const Dtype& dtype : kDtypes) {
    if (name == dtype.name) return dtype;
  }
  refuse_bundle(where + " is of the dtype " + name + ", whose numbers are not known");
}

std::string to_text(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", number);
  return text;
}

}  // namespace adrenoc_runtime
