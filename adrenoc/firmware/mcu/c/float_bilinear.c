/* Another size of an image in float32, as onnxruntime has it: each number between four, of which
 * each is multiplied by a product of two shares.  Every operation rounds on its own. */
typedef struct {
  int32_t in_width, channels, out_height, out_width;
  int32_t scale_in, scale_out, zero_in, zero_out, offset;
  const int16_t *first_row, *second_row, *first_column, *second_column;
  const int32_t *of_first_row, *of_second_row, *of_first_column, *of_second_column;
} float_bilinear_layer;

static void float_bilinear(const float_bilinear_layer *layer, const int8_t *in, int8_t *out) {
  const int32_t channels = layer->channels, row = layer->in_width * channels;
  const float scale = float_of(layer->scale_in), step = float_of(layer->scale_out);
  for (int32_t y = 0; y < layer->out_height; ++y) {
    const int8_t *const rows[2] = {in + layer->first_row[y] * row, in + layer->second_row[y] * row};
    const float down[2] = {float_of(layer->of_first_row[y]), float_of(layer->of_second_row[y])};
    for (int32_t x = 0; x < layer->out_width; ++x) {
      const int32_t columns[2] = {layer->first_column[x] * channels,
                                  layer->second_column[x] * channels};
      const float across[2] = {float_of(layer->of_first_column[x]),
                               float_of(layer->of_second_column[x])};
      for (int32_t c = 0; c < channels; ++c) {
        float total = 0.0f;
        for (int32_t i = 0; i < 4; ++i) {
          const float share = across[i & 1] * down[i >> 1];
          const float real = (float)(rows[i >> 1][columns[i & 1] + c] - layer->zero_in) * scale;
          const float part = share * real;
          total += part;
        }
        const float quanta = total / step;
        const int32_t found = nearest(quanta) + layer->zero_out;
        *out++ = (int8_t)clamp_int8(found - layer->offset, -128, 127);
      }
    }
  }
}
