/* Elements of int8 at other places. */
static void move_elements(const move_layer *layer, const int8_t *in, int8_t *out) {
  const int32_t last = layer->extents[3];
  for (int32_t a = 0; a < layer->extents[0]; ++a)
    for (int32_t b = 0; b < layer->extents[1]; ++b)
      for (int32_t c = 0; c < layer->extents[2]; ++c) {
        const int32_t x = layer->offsets[0][a], y = layer->offsets[1][b], z = layer->offsets[2][c];
        const int32_t outside = x < 0 || y < 0 || z < 0;
        const int8_t *const from = in + (outside ? 0 : x + y + z);
        if (!outside && layer->run) {
          for (int32_t d = 0; d < last; ++d) out[d] = from[layer->offsets[3][0] + d];
        } else {
          for (int32_t d = 0; d < last; ++d) {
            const int32_t offset = layer->offsets[3][d];
            out[d] = outside || offset < 0 ? (int8_t)layer->fill : from[offset];
          }
        }
        out += last;
      }
}
