/* A channel at a time. */
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
