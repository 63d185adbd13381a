/* Depthwise convolutions of any window and channel multiplier; a row of a window fits 32 bits. */
static void word_columns(const word_layer *layer, int32_t x, int32_t *ends) {
  const int32_t column = x * layer->stride_x - layer->left, step = layer->dilation_x;
  const int32_t room = layer->in_width - column;
  const int32_t last = room <= 0 ? 0 : (room + step - 1) / step;
  ends[0] = column < 0 ? (-column + step - 1) / step : 0;
  ends[1] = last < layer->kernel_width ? last : layer->kernel_width;
}
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
