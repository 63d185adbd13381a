#include "base/half.h"

#include <cmath>
#include <limits>

namespace adrenoc_runtime {
namespace {

constexpr int kBias = 15, kMantissaBits = 10, kTopExponent = 0x1f;

}  // namespace

double number_of(Half half) {
  const int exponent = half.bits >> kMantissaBits & kTopExponent;
  const int mantissa = half.bits & 0x3ff;
  double value = 0;
  if (exponent == kTopExponent) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, -24);
  } else {
    value = std::ldexp(mantissa + 1024, exponent - 25);
  }
  return (half.bits & 0x8000) != 0 ? -value : value;
}

Half exact_half(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  int exponent = 0;
  // In [1, 2) times a power of two, as a half's normal numbers are.
  const double fraction = 2 * std::frexp(std::fabs(value), &exponent);
  const int biased = exponent - 1 + kBias;
  if (value == 0 || biased <= 0) return {sign};
  if (biased >= kTopExponent) return {static_cast<uint16_t>(sign | kTopExponent << kMantissaBits)};
  const auto mantissa = static_cast<int>(std::ldexp(fraction - 1, kMantissaBits));
  return {static_cast<uint16_t>(sign | biased << kMantissaBits | mantissa)};
}

}  // namespace adrenoc_runtime
