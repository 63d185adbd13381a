/* The logistic function and tanh in fixed point of 16 bits: exp of what is left of quarters, times
 * a factor for each, and a division by Newton's method. */
static inline int32_t half_times(int32_t a, int32_t b) {
  const int32_t product = (a * b + (1 << 14)) >> 15;
  return product > 32767 ? 32767 : product;
}
static inline int32_t half_held(int32_t value) {
  return value < -32768 ? -32768 : value > 32767 ? 32767 : value;
}
/* exp of a number that is zero or less, with so many bits before the point. */
static int32_t half_exponential(int32_t number, int32_t bits) {
  static const int16_t factors[7] = {25520, 19875, 12055, 4435, 600, 11, 0};
  const int32_t quarter = 1 << (13 - bits), rest = (number & (quarter - 1)) - quarter;
  const int32_t x = half_held(rest * (1 << bits)) + (1 << 12), square = half_times(x, x);
  const int32_t cube = half_times(square, x), fourth = half_times(square, square);
  const int32_t third = half_times(shift_right(fourth, 2) + cube, 10923);
  int32_t found = half_held(28918 + half_times(x + shift_right(third + square, 1), 28918));
  const int32_t quarters = (rest - number) >> (13 - bits);
  if (number == 0) return 32767;
  if (bits > 5 && number < -(1 << (20 - bits))) return 0;
  for (int32_t i = 0; i < bits + 2 && i < 7; ++i)
    if (quarters >> i & 1) found = half_times(found, factors[i]);
  return found;
}
/* 2 / (1 + x) with two bits before the point. */
static int32_t half_reciprocal(int32_t x) {
  const int32_t half = (x + 32768) >> 1;
  int32_t guess = 23130 + half_times(half, -15420);
  for (int32_t step = 0; step < 3; ++step)
    guess += half_held(half_times(guess, 8192 - half_times(half, guess)) * 4);
  return guess;
}
static int32_t half_logistic(int32_t number) {
  if (number == 0) return 16384;
  const int32_t found =
      half_held(half_reciprocal(half_exponential(number < 0 ? number : -number, 3)) * 2);
  return number < 0 ? 32767 - found : found;
}
static int32_t half_tanh(int32_t number, int32_t bits) {
  if (number == 0) return 0;
  const int32_t power = half_exponential(number < 0 ? number : -number, bits + 1);
  const int32_t found = half_held((half_reciprocal(power) - 8192) * 4);
  return number < 0 ? -found : found;
}
