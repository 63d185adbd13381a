// IEEE half, in the bits of an integer.
#pragma once

#include <cstdint>

namespace adrenoc_runtime {

struct Half {
  uint16_t bits;
};

[[nodiscard]] double number_of(Half half);

// The nearest half, of two the even one.
[[nodiscard]] Half nearest_half(double value);

}  // namespace adrenoc_runtime
