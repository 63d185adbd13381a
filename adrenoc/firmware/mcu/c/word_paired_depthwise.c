/* Two channels at once, of weights of 16 bits. */
static inline int32_t add_low(int32_t sum, uint32_t a, uint32_t b) {
#if defined(__ARM_FEATURE_DSP)
  __asm__("smlabb %0, %1, %2, %0" : "+r"(sum) : "r"(a), "r"(b));
  return sum;
#else
  return sum + (int16_t)a * (int16_t)b;
#endif
}
static inline int32_t add_high(int32_t sum, uint32_t a, uint32_t b) {
#if defined(__ARM_FEATURE_DSP)
  __asm__("smlatt %0, %1, %2, %0" : "+r"(sum) : "r"(a), "r"(b));
  return sum;
#else
  return sum + (int16_t)(a >> 16) * (int16_t)(b >> 16);
#endif
}
static void word_depthwise_dsp(const word_layer *layer, const int8_t *source, int8_t *result) {
  const int16_t *const in = (const int16_t *)source;
  int16_t *out = (int16_t *)result;
  const int32_t depth = layer->in_channels, step = layer->dilation_x * depth;
  int32_t ends[2];
  for (int32_t y = 0; y < layer->out_height; ++y)
    for (int32_t x = 0; x < layer->out_width; ++x, out += depth) {
      word_columns(layer, x, ends);
      for (int32_t c = 0; c < depth; c += 2) {
        int32_t low = 0, high = 0;
        for (int32_t ky = 0; ky < layer->kernel_height; ++ky) {
          const int32_t row = y * layer->stride_y + ky * layer->dilation_y - layer->top;
          if (row < 0 || row >= layer->in_height) continue;
          const int32_t column = x * layer->stride_x - layer->left + ends[0] * layer->dilation_x;
          const int16_t *from = in + (row * layer->in_width + column) * depth + c;
          const int16_t *weights = layer->pairs + (ky * layer->kernel_width + ends[0]) * depth + c;
          for (int32_t left = ends[1] - ends[0]; left > 0; --left) {
            const uint32_t pair = load_word((const int8_t *)from);
            const uint32_t by = load_word((const int8_t *)weights);
            low = add_low(low, pair, by), high = add_high(high, pair, by);
            from += step, weights += depth;
          }
        }
        const int32_t sums[2] = {low, high};
        word_store_run(layer, sums, out + c, c, 2);
      }
    }
}
