#include "base/half.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace adrenoc_runtime {
namespace {

constexpr int kBias = 15, kMantissaBits = 10, kTopExponent = 0x1f;
// The same of a double, and by how many bits its mantissa is longer.
constexpr int kDoubleBias = 1023, kDoubleMantissaBits = 52;
constexpr int kCut = kDoubleMantissaBits - kMantissaBits;
constexpr uint16_t kSign = 0x8000;
constexpr double kLeastNormal = 1.0 / (1 << 14);
constexpr double kQuantum = 1.0 / (1 << 24);  // of numbers below that
constexpr double kBeyond = 65520;             // half a step above the largest half

uint64_t bits_of(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

}  // namespace

double number_of(Half half) {
  const int exponent = half.bits >> kMantissaBits & kTopExponent;
  const int mantissa = half.bits & 0x3ff;
  double value = 0;
  if (exponent == kTopExponent) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = mantissa * kQuantum;
  } else {
    const auto biased = static_cast<uint64_t>(exponent - kBias + kDoubleBias);
    const uint64_t bits = biased << kDoubleMantissaBits | static_cast<uint64_t>(mantissa) << kCut;
    std::memcpy(&value, &bits, sizeof value);
  }
  return (half.bits & kSign) != 0 ? -value : value;
}

Half nearest_half(double value) {
  const uint16_t sign = std::signbit(value) ? kSign : 0;
  const double size = std::fabs(value);
  const uint16_t infinite = kTopExponent << kMantissaBits;
  if (std::isnan(value)) return {static_cast<uint16_t>(sign | infinite | 0x200)};
  if (size >= kBeyond) return {static_cast<uint16_t>(sign | infinite)};
  if (size < kLeastNormal) {
    // A double whose last bit is a quantum rounds as is wanted; its mantissa then counts them.
    const double counted =
        size + kQuantum * static_cast<double>(uint64_t{1} << kDoubleMantissaBits);
    return {static_cast<uint16_t>(sign | (bits_of(counted) & 0x7ff))};
  }
  constexpr uint64_t kBiases = static_cast<uint64_t>(kDoubleBias - kBias) << kDoubleMantissaBits;
  const uint64_t bits = bits_of(size) - kBiases;
  const uint64_t rounded = bits + (uint64_t{1} << (kCut - 1)) - 1 + (bits >> kCut & 1);
  return {static_cast<uint16_t>(sign | rounded >> kCut)};
}

}  // namespace adrenoc_runtime
