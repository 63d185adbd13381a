/* Softmax of int16 over rows: exponentials and a reciprocal by lines between points of tables. */
static inline int32_t on_lines(const int16_t *points, int32_t number) {
  const int32_t held = clamp_word(number, INT16_MIN, INT16_MAX), place = 256 + (held >> 7);
  const int32_t rise = points[place + 1] - points[place];
  return points[place] + ((rise * (held & 127) + 64) >> 7);
}
static void word_softmax(const int16_t *powers, const int16_t *reciprocals, const int8_t *source,
                         int8_t *result, int32_t rows, int32_t depth, int32_t multiplier,
                         int32_t shift) {
  const int16_t *in = (const int16_t *)source;
  int16_t *out = (int16_t *)result;
  for (int32_t row = 0; row < rows; ++row, in += depth, out += depth) {
    int32_t most = INT16_MIN, sum = 0;
    for (int32_t i = 0; i < depth; ++i)
      if (in[i] > most) most = in[i];
    for (int32_t i = 0; i < depth; ++i) {
      const int32_t apart = requantise_twice(in[i] - most, multiplier, shift);
      out[i] = (int16_t)on_lines(powers, clamp_word(apart, -65535, 0) + 32767);
      sum += out[i];
    }
    int32_t bits = 0;
    while (sum >> bits) ++bits;
    const int32_t near =
        (int32_t)((((int64_t)sum << (31 - bits)) + (1 << 13)) >> 14) - (1 << 15) - (1 << 16);
    const int32_t factor = on_lines(reciprocals, near), half = 1 << (bits - 2);
    for (int32_t i = 0; i < depth; ++i) {
      const int32_t found = (int32_t)(((int64_t)out[i] * factor + half) >> (bits - 1));
      out[i] = (int16_t)clamp_word(found, 0, INT16_MAX);
    }
  }
}
