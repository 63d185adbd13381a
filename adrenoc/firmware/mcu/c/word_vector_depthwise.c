/* Four channels at once, or as many as are left. */
#if defined(__ARM_FEATURE_MVE)
static inline void word_add_row(const int16_t *from, int32_t step, const int8_t *weights,
                                int32_t channels, int32_t count, int32_t lanes, int32_t *sums) {
  __asm__ volatile(
      "vctp.32 %[lanes]\n"
      "vldrw.u32 q0, [%[sums]]\n"
      "wls lr, %[count], 2f\n"
      "1:\n"
      "vpstt\n"
      "vldrht.s32 q1, [%[from]]\n"
      "vldrbt.s32 q2, [%[weights]]\n"
      "add %[from], %[from], %[step]\n"
      "vmul.i32 q1, q1, q2\n"
      "add %[weights], %[weights], %[channels]\n"
      "vadd.i32 q0, q0, q1\n"
      "le lr, 1b\n"
      "2:\n"
      "vstrw.32 q0, [%[sums]]\n"
      : [from] "+r"(from), [weights] "+r"(weights)
      : [step] "r"(2 * step), [channels] "r"(channels), [count] "r"(count), [lanes] "r"(lanes),
        [sums] "r"(sums)
      : "q0", "q1", "q2", "lr", "memory", "cc");
}
#else
static inline void word_add_row(const int16_t *from, int32_t step, const int8_t *weights,
                                int32_t channels, int32_t count, int32_t lanes, int32_t *sums) {
  for (; count > 0; --count, from += step, weights += channels)
    for (int32_t i = 0; i < lanes; ++i) sums[i] += from[i] * weights[i];
}
#endif
static void word_depthwise_mve(const word_layer *layer, const int8_t *source, int8_t *result) {
  const int16_t *const in = (const int16_t *)source;
  int16_t *out = (int16_t *)result;
  const int32_t depth = layer->in_channels, step = layer->dilation_x * depth;
  int32_t ends[2];
  for (int32_t y = 0; y < layer->out_height; ++y)
    for (int32_t x = 0; x < layer->out_width; ++x, out += depth) {
      word_columns(layer, x, ends);
      for (int32_t c = 0; c < depth; c += 4) {
        const int32_t lanes = depth - c < 4 ? depth - c : 4;
        int32_t sums[4] = {0};
        for (int32_t ky = 0; ky < layer->kernel_height; ++ky) {
          const int32_t row = y * layer->stride_y + ky * layer->dilation_y - layer->top;
          if (row < 0 || row >= layer->in_height || ends[1] <= ends[0]) continue;
          const int32_t column = x * layer->stride_x - layer->left + ends[0] * layer->dilation_x;
          word_add_row(in + (row * layer->in_width + column) * depth + c, step,
                       layer->weights + (ky * layer->kernel_width + ends[0]) * depth + c, depth,
                       ends[1] - ends[0], lanes, sums);
        }
        word_store_run(layer, sums, out + c, c, lanes);
      }
    }
}
