/* Softmax over rows in float32; `exponentials` are those of -255 ... 0 quanta. */
static void float_softmax(const int32_t *exponentials, const int8_t *in, int8_t *out, int32_t rows,
                          int32_t depth, int32_t scale_bits, int32_t zero) {
  const float scale = float_of(scale_bits);
  for (int32_t row = 0; row < rows; ++row, in += depth, out += depth) {
    int32_t most = in[0];
    for (int32_t i = 1; i < depth; ++i) most = in[i] > most ? in[i] : most;
    const int32_t *const own = exponentials + 255 - most;
    float sum = 0.0f;
    for (int32_t i = 0; i < depth; ++i) sum += float_of(own[in[i]]);
    for (int32_t i = 0; i < depth; ++i) {
      const float share = float_of(own[in[i]]) * scale;
      out[i] = (int8_t)clamp_int8(nearest(share / sum) + zero, -128, 127);
    }
  }
}
