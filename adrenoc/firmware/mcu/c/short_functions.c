/* The logistic function and tanh in fixed point of 16 bits: exp of what is left of quarters, times
 * a factor for each, and a division by Newton's method. */
static inline int32_t short_times(int32_t a, int32_t b) {
  const int32_t product = (a * b + (1 << 14)) >> 15;
  return product > 32767 ? 32767 : product;
}
static inline int32_t short_held(int32_t value) {
  return value < -32768 ? -32768 : value > 32767 ? 32767 : value;
}
/* exp of a number that is zero or less, with so many bits before the point. */
static int32_t short_exponential(int32_t number, int32_t bits) {
  static const int16_t factors[7] = {25520, 19875, 12055, 4435, 600, 11, 0};
  const int32_t quarter = 1 << (13 - bits), rest = (number & (quarter - 1)) - quarter;
  const int32_t x = short_held(rest * (1 << bits)) + (1 << 12), square = short_times(x, x);
  const int32_t cube = short_times(square, x), fourth = short_times(square, square);
  const int32_t third = short_times(shift_right(fourth, 2) + cube, 10923);
  int32_t found = short_held(28918 + short_times(x + shift_right(third + square, 1), 28918));
  const int32_t quarters = (rest - number) >> (13 - bits);
  if (number == 0) return 32767;
  if (bits > 5 && number < -(1 << (20 - bits))) return 0;
  for (int32_t i = 0; i < bits + 2 && i < 7; ++i)
    if (quarters >> i & 1) found = short_times(found, factors[i]);
  return found;
}
/* 2 / (1 + x) with two bits before the point. */
static int32_t short_reciprocal(int32_t x) {
  const int32_t half = (x + 32768) >> 1;
  int32_t guess = 23130 + short_times(half, -15420);
  for (int32_t step = 0; step < 3; ++step)
    guess += short_held(short_times(guess, 8192 - short_times(half, guess)) * 4);
  return guess;
}
static int32_t short_logistic(int32_t number) {
  if (number == 0) return 16384;
  const int32_t found =
      short_held(short_reciprocal(short_exponential(number < 0 ? number : -number, 3)) * 2);
  return number < 0 ? 32767 - found : found;
}
static int32_t short_tanh(int32_t number, int32_t bits) {
  if (number == 0) return 0;
  const int32_t power = short_exponential(number < 0 ? number : -number, bits + 1);
  const int32_t found = short_held((short_reciprocal(power) - 8192) * 4);
  return number < 0 ? -found : found;
}
