/* Another size of an image of int16, as of int8; sums have 64 bits. */
static void resize_words(const bilinear_layer *layer, const int8_t *source, int8_t *result) {
  const int16_t *const in = (const int16_t *)source;
  int16_t *out = (int16_t *)result;
  const int32_t channels = layer->channels, row = layer->in_width * channels;
  for (int32_t y = 0; y < layer->out_height; ++y) {
    const int16_t *const above = in + layer->first_row[y] * row;
    const int16_t *const below = in + layer->second_row[y] * row;
    const int32_t down = layer->weight_row[y], up = 1024 - down;
    for (int32_t x = 0; x < layer->out_width; ++x) {
      const int32_t left = layer->first_column[x] * channels;
      const int32_t right = layer->second_column[x] * channels;
      const int32_t across = layer->weight_column[x], back = 1024 - across;
      for (int32_t c = 0; c < channels; ++c) {
        const int64_t top = (int64_t)(above[left + c] * back + above[right + c] * across) * up;
        const int64_t sum =
            top + (int64_t)(below[left + c] * back + below[right + c] * across) * down;
        *out++ = (int16_t)((sum + (sum > 0 ? 1 << 19 : -(1 << 19))) / (1 << 20));
      }
    }
  }
}
