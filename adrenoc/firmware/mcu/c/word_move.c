/* Elements of int16 at other places, by tables as for int8. */
static void move_words(const move_layer *layer, const int8_t *source, int8_t *result) {
  const int16_t *const in = (const int16_t *)source;
  int16_t *out = (int16_t *)result;
  for (int32_t a = 0; a < layer->extents[0]; ++a)
    for (int32_t b = 0; b < layer->extents[1]; ++b)
      for (int32_t c = 0; c < layer->extents[2]; ++c) {
        const int32_t x = layer->offsets[0][a], y = layer->offsets[1][b], z = layer->offsets[2][c];
        const int32_t outside = x < 0 || y < 0 || z < 0;
        const int16_t *const from = in + (outside ? 0 : x + y + z);
        for (int32_t d = 0; d < layer->extents[3]; ++d) {
          const int32_t offset = layer->offsets[3][d];
          *out++ = outside || offset < 0 ? (int16_t)layer->fill : from[offset];
        }
      }
}
