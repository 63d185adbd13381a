/* Depthwise convolutions of any channel multiplier, a channel at a time; a row fits 32 bits. */
static int64_t word_window(const word_layer *layer, const int16_t *in, int32_t y, int32_t x,
                           const int32_t *ends, int32_t c) {
  const int32_t depth = layer->in_channels, channels = layer->out_channels;
  const int32_t many = channels / depth, step = layer->dilation_x * depth;
  int64_t total = 0;
  for (int32_t ky = 0; ky < layer->kernel_height; ++ky) {
    const int32_t row = y * layer->stride_y + ky * layer->dilation_y - layer->top;
    if (row < 0 || row >= layer->in_height) continue;
    const int32_t column = x * layer->stride_x - layer->left;
    const int16_t *const from = in + (row * layer->in_width + column) * depth + c / many;
    const int8_t *const weights = layer->weights + ky * layer->kernel_width * channels + c;
    int32_t sum = 0;
    for (int32_t kx = ends[0]; kx < ends[1]; ++kx) sum += from[kx * step] * weights[kx * channels];
    total += sum;
  }
  return total;
}
static void word_depthwise_plain(const word_layer *layer, const int8_t *source, int8_t *result) {
  const int16_t *const in = (const int16_t *)source;
  int16_t *out = (int16_t *)result;
  int32_t ends[2];
  for (int32_t y = 0; y < layer->out_height; ++y)
    for (int32_t x = 0; x < layer->out_width; ++x) {
      word_columns(layer, x, ends);
      for (int32_t c = 0; c < layer->out_channels; ++c)
        *out++ = word_store(layer, word_window(layer, in, y, x, ends, c), c);
    }
}
