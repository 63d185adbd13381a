/* Functions of instructions alone take their parameters from registers. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
/* Sums of int32 become int8.  `requantise_twice`: the upper half of a doubled product, rounded,
 * then a shift that rounds halves away from zero.  `requantise_once`: one product in 64 bits. */
static inline int32_t clamp_int8(int32_t value, int32_t low, int32_t high) {
  return value < low ? low : value > high ? high : value;
}
static inline int32_t shift_right(int32_t value, int32_t bits) {
  const int32_t mask = (int32_t)((UINT32_C(1) << bits) - 1);
  return (value >> bits) + ((value & mask) > (mask >> 1) + (value < 0));
}
static inline int32_t requantise_twice(int32_t sum, int32_t multiplier, int32_t shift) {
  const int32_t left = shift > 0 ? shift : 0, right = shift > 0 ? 0 : -shift;
  const int32_t scaled =
      (int32_t)(((int64_t)(int32_t)((uint32_t)sum << left) * multiplier + (1 << 30)) >> 31);
  return shift_right(scaled, right);
}
typedef int32_t single_function(int32_t sum, int32_t factor, int32_t zero);
static inline int32_t requantise_single(int32_t sum, int32_t factor, int32_t zero) {
  const union { int32_t bits; float number; } real = {factor};
  const float scaled = (float)sum * real.number;
  const float near = scaled < -512.0f ? -512.0f : scaled > 512.0f ? 512.0f : scaled;
  /* What is added leaves no place for fractions, so that they are rounded, halves to even. */
  const union { float number; int32_t bits; } whole = {near + 12582912.0f};
  return whole.bits - 0x4B400000 + zero;
}
static inline int32_t requantise_once(int32_t sum, int32_t multiplier, int64_t offset,
                                      int32_t shift) {
  return (int32_t)(((int64_t)sum * multiplier + offset) >> shift);
}
