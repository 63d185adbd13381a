/* Convolutions: what a window sees is laid side by side, but where it is one pixel. */
static void word_patch(const word_layer *layer, const int16_t *in, int32_t pixel, int16_t *patch) {
  const int32_t depth = layer->in_channels, y = pixel / layer->out_width;
  const int32_t x = pixel - y * layer->out_width;
  for (int32_t ky = 0; ky < layer->kernel_height; ++ky) {
    const int32_t row = y * layer->stride_y + ky * layer->dilation_y - layer->top;
    const int32_t inside = row >= 0 && row < layer->in_height;
    for (int32_t kx = 0; kx < layer->kernel_width; ++kx, patch += depth) {
      const int32_t column = x * layer->stride_x + kx * layer->dilation_x - layer->left;
      if (!inside || column < 0 || column >= layer->in_width) {
        for (int32_t i = 0; i < depth; ++i) patch[i] = 0;
      } else {
        const int16_t *const from = in + (row * layer->in_width + column) * depth;
        for (int32_t i = 0; i < depth; ++i) patch[i] = from[i];
      }
    }
  }
}
/* Two channels of two pixels, whose sums take more than 32 bits. */
static void word_long_sums(const word_layer *layer, const int16_t *first, const int16_t *second,
                           int16_t *out, int32_t pixels) {
  const int32_t channels = layer->out_channels, taps = layer->taps;
  for (int32_t c = 0; c < channels; c += 2) {
    const int32_t next = c + 1 < channels ? c + 1 : c;
    const int8_t *const one = layer->weights + c * taps, *const two = layer->weights + next * taps;
    int64_t sums[4] = {0};
    for (int32_t at = 0; at < taps; at += layer->piece) {
      const int32_t count = taps - at < layer->piece ? taps - at : layer->piece;
      int32_t found[4];
      word_dots(first + at, second + at, one + at, two + at, count, found, found + 2);
      for (int32_t i = 0; i < 4; ++i) sums[i] += found[i];
    }
    for (int32_t i = 0; i < 2 * pixels; ++i) {
      const int32_t channel = i & 1 ? next : c;
      out[(i >> 1) * channels + channel] = word_store(layer, sums[i], channel);
    }
  }
}
static void word_short_sums(const word_layer *layer, const int16_t *first, const int16_t *second,
                            int16_t *out, int32_t pixels) {
  const int32_t channels = layer->out_channels, taps = layer->taps;
  const int8_t *weights = layer->weights;
  for (int32_t c = 0; c < channels; c += 4) {
    const int32_t count = channels - c < 4 ? channels - c : 4;
    int32_t near[4], far[4];
    for (int32_t i = 0; i < count; i += 2, weights += 2 * taps) {
      const int8_t *const next = i + 1 < count ? weights + taps : weights;
      word_dots(first, second, weights, next, taps, near + i, far + i);
    }
    word_store_run(layer, near, out + c, c, count);
    if (pixels > 1) word_store_run(layer, far, out + channels + c, c, count);
  }
}
static void word_convolution(const word_layer *layer, const int8_t *source, int8_t *result,
                             int16_t *patches) {
  const int16_t *const in = (const int16_t *)source;
  int16_t *const out = (int16_t *)result;
  const int32_t count = layer->out_height * layer->out_width, taps = layer->taps;
  for (int32_t pixel = 0; pixel < count; pixel += 2) {
    const int32_t pixels = count - pixel < 2 ? 1 : 2;
    const int16_t *first = in + pixel * taps, *second = first + (pixels - 1) * taps;
    if (patches) {
      word_patch(layer, in, pixel, patches);
      if (pixels > 1) word_patch(layer, in, pixel + 1, patches + taps);
      first = patches, second = patches + (pixels - 1) * taps;
    }
    int16_t *const made = out + pixel * layer->out_channels;
    if (layer->piece < taps)
      word_long_sums(layer, first, second, made, pixels);
    else
      word_short_sums(layer, first, second, made, pixels);
  }
}
