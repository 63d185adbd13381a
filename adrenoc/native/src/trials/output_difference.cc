#include "trials/output_difference.h"

#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/half.h"

namespace adrenoc_runtime {
namespace {

constexpr double kMostQuanta = 255;

double number_of(float value) { return static_cast<double>(value); }
double number_of(double value) { return value; }
template <typename Integer>
double number_of(Integer value) {
  return static_cast<double>(value);
}

struct Difference {
  double largest_wanted = 0;
  double largest_off = 0;
};

template <typename Element>
Difference difference_of(const void* got, const void* wanted, size_t elements) {
  const auto* ours = static_cast<const Element*>(got);
  const auto* theirs = static_cast<const Element*>(wanted);
  Difference found;
  for (size_t i = 0; i < elements; ++i) {
    const double a = number_of(ours[i]);
    const double b = number_of(theirs[i]);
    if (std::isfinite(a) != std::isfinite(b)) {
      found.largest_off = std::numeric_limits<double>::infinity();
      return found;
    }
    if (!std::isfinite(b)) continue;
    found.largest_wanted = std::max(found.largest_wanted, std::fabs(b));
    found.largest_off = std::max(found.largest_off, std::fabs(a - b));
  }
  return found;
}

Difference difference_of_type(const void* got, const void* wanted, size_t elements,
                              DLDataType type) {
  if (type.code == kDLFloat && type.bits == 16) return difference_of<Half>(got, wanted, elements);
  if (type.code == kDLFloat && type.bits == 32) return difference_of<float>(got, wanted, elements);
  if (type.code == kDLFloat && type.bits == 64) return difference_of<double>(got, wanted, elements);
  const bool is_signed = type.code == kDLInt;
  if (is_signed || type.code == kDLUInt || type.code == kDLBool) {
    if (type.bits <= 8) {
      return is_signed ? difference_of<int8_t>(got, wanted, elements)
                       : difference_of<uint8_t>(got, wanted, elements);
    }
    if (type.bits == 16) {
      return is_signed ? difference_of<int16_t>(got, wanted, elements)
                       : difference_of<uint16_t>(got, wanted, elements);
    }
    if (type.bits == 32) {
      return is_signed ? difference_of<int32_t>(got, wanted, elements)
                       : difference_of<uint32_t>(got, wanted, elements);
    }
    if (type.bits == 64) {
      return is_signed ? difference_of<int64_t>(got, wanted, elements)
                       : difference_of<uint64_t>(got, wanted, elements);
    }
  }
  TVM_FFI_THROW(ValueError) << "Outputs of type " << tvm::ffi::DLDataTypeToString(type)
                            << " cannot be compared";
  TVM_FFI_UNREACHABLE();
}

}  // namespace

double output_difference(const void* got, const void* wanted, size_t elements, DLDataType type) {
  if (std::memcmp(got, wanted, elements * ((type.bits + 7) / 8)) == 0) return 0;
  const Difference found = difference_of_type(got, wanted, elements, type);
  if (type.code == kDLUInt && type.bits == 8) return found.largest_off / kMostQuanta;
  return found.largest_wanted == 0 ? found.largest_off : found.largest_off / found.largest_wanted;
}

}  // namespace adrenoc_runtime
