/* Another size of an image of int8. */
static void resize_bilinear(const bilinear_layer *layer, const int8_t *in, int8_t *out) {
  const int32_t channels = layer->channels, row = layer->in_width * channels;
  for (int32_t y = 0; y < layer->out_height; ++y) {
    const int8_t *const above = in + layer->first_row[y] * row;
    const int8_t *const below = in + layer->second_row[y] * row;
    const int32_t down = layer->weight_row[y], up = 1024 - down;
    for (int32_t x = 0; x < layer->out_width; ++x) {
      const int32_t left = layer->first_column[x] * channels;
      const int32_t right = layer->second_column[x] * channels;
      const int32_t across = layer->weight_column[x], back = 1024 - across;
      const int32_t weights[4] = {up * back, up * across, down * back, down * across};
      for (int32_t c = 0; c < channels; ++c) {
        const int32_t sum = above[left + c] * weights[0] + above[right + c] * weights[1] +
                            below[left + c] * weights[2] + below[right + c] * weights[3];
        *out++ = (int8_t)((sum + (sum > 0 ? 1 << 19 : -(1 << 19))) / (1 << 20));
      }
    }
  }
}
