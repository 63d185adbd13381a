/* A gate's sums less their mean, over their deviation: 1 / sqrt by Newton's method. */
static inline int32_t norm_high(int32_t a, int32_t b) {
  return (int32_t)(((int64_t)a * b + (1 << 30)) >> 31);
}
static inline int32_t norm_raised(int32_t value, int32_t bits) {
  return (int32_t)((int64_t)value * (1 << bits) > INT32_MAX   ? INT32_MAX
                   : (int64_t)value * (1 << bits) < INT32_MIN ? INT32_MIN
                                                              : value * (1 << bits));
}
static void norm_inverse_root(int32_t value, int32_t *factor) {
  factor[0] = INT32_MAX, factor[1] = 0;
  if (value <= 1) return;
  int32_t shift = 11, pairs = 0;
  for (; value >= 1 << 29; ++shift) value /= 4;
  for (; value < 1 << 27; ++pairs) value *= 4;
  shift -= pairs;
  const int32_t half = shift_right(value >> 1, 1);
  int32_t x = 1 << 28;
  for (int32_t step = 0; step < 5; ++step) {
    const int32_t cube = norm_raised(norm_high(norm_high(x, x), x), 6);
    x = norm_raised(norm_high((1 << 28) + (1 << 27), x) - norm_high(half, cube), 3);
  }
  x = norm_high(x, 1518500250);
  factor[0] = shift < 0 ? (int32_t)((uint32_t)x << -shift) : x;
  factor[1] = shift < 0 ? 0 : -shift;
}
static void lstm_norm(const int16_t *weights, const int32_t *bias, const int32_t *factor,
                      int32_t guard, int16_t *numbers, int32_t count) {
  int64_t sum = 0, squares = 0;
  for (int32_t i = 0; i < count; ++i) {
    sum += numbers[i];
    squares += numbers[i] * numbers[i];
  }
  const int32_t mean = (int32_t)(sum * 1024 / count);
  const int64_t spread = squares * ((1 << 20) / count) - (int64_t)mean * mean;
  int32_t variance = (int32_t)(spread / (1 << 20)), root[2];
  if (variance < 1) variance = guard;
  norm_inverse_root(variance, root);
  for (int32_t i = 0; i < count; ++i) {
    const int32_t scaled = requantise_twice(1024 * numbers[i] - mean, root[0], root[1]);
    const uint32_t product = (uint32_t)scaled * (uint32_t)weights[i];
    const int32_t total = (int32_t)(product + (uint32_t)bias[i]);
    const int32_t near = (int32_t)(((int64_t)total + (total > 0 ? 512 : -512)) / 1024);
    const int32_t value = requantise_twice(near, factor[0], factor[1] + 12);
    numbers[i] = (int16_t)(value < -32768 ? -32768 : value > 32767 ? 32767 : value);
  }
}
