/* Softmax over rows, in fixed point: exponentials of differences come from a table, the reciprocal
 * of their sum from three steps of Newton's method. */
static inline int32_t doubling_high_product(int32_t a, int32_t b) {
  return (int32_t)(((int64_t)a * b + (1 << 30)) >> 31);
}

static void softmax(const int32_t *exponentials, const int8_t *in, int8_t *out, int32_t rows,
                    int32_t depth) {
  for (int32_t row = 0; row < rows; ++row, in += depth, out += depth) {
    int32_t most = -128, sum = 0;
    for (int32_t i = 0; i < depth; ++i)
      if (in[i] > most) most = in[i];
    for (int32_t i = 0; i < depth; ++i)
      sum += shift_right(exponentials[most - in[i]], 12);
    int32_t zeros = 0;
    while (!((uint32_t)sum << zeros & UINT32_C(0x80000000))) ++zeros;
    const int32_t half = (int32_t)((uint32_t)sum << zeros >> 1);
    int32_t scale = 1515870810 + doubling_high_product(half, -1010580540);
    for (int32_t step = 0; step < 3; ++step) {
      const int32_t left = (1 << 29) - doubling_high_product(half, scale);
      scale += (int32_t)((uint32_t)doubling_high_product(scale, left) << 2);
    }
    scale = scale >= 1 << 30 ? INT32_MAX : (int32_t)((uint32_t)scale << 1);
    for (int32_t i = 0; i < depth; ++i) {
      const int32_t product = doubling_high_product(scale, exponentials[most - in[i]]);
      out[i] = (int8_t)clamp_int8(shift_right(product, 12 - zeros + 31 - 8) - 128, -128, 127);
    }
  }
}
