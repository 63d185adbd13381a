/* How a sum becomes a byte where there are no vectors: two roundings in fixed point (of positive
 * sums alone, or of any), one in float64 with halves away from zero, one in float32 with halves to
 * even.  Of four channels `constants` has eight words. */
static inline int8_t neon_byte(int32_t sum, const int32_t *constants, int32_t c, int32_t kind,
                               int32_t zero, int32_t low, int32_t high) {
  const int32_t *const four = constants + c / 4 * 8, lane = c % 4;
  if (kind == 3)
    return (int8_t)clamp_int8(requantise_single(sum, four[lane], zero), low, high);
  if (kind == 2) {
    const int32_t *const half = four + 2 * lane;
    const union { int32_t words[2]; double number; } factor = {{half[0], half[1]}};
    const double real = sum * factor.number, near = real < -512 ? -512 : real > 512 ? 512 : real;
    const int32_t whole = (int32_t)near;
    const double left = near - whole;
    const int32_t rounded = whole + (left >= 0.5) - (left <= -0.5);
    return (int8_t)clamp_int8(rounded + zero, low, high);
  }
  return (int8_t)clamp_int8(requantise_twice(sum, four[lane], four[4 + lane]) + zero, low, high);
}
