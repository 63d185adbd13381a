/* Average or maximum of a window of int16. */
static void word_pool(const pool_layer *layer, const int8_t *source, int8_t *result,
                      int32_t averages) {
  const int16_t *const in = (const int16_t *)source;
  int16_t *out = (int16_t *)result;
  int32_t box[4];
  for (int32_t y = 0; y < layer->out_height; ++y)
    for (int32_t x = 0; x < layer->out_width; ++x) {
      pool_window(layer, y, x, box);
      const int32_t count = (box[1] - box[0]) * (box[3] - box[2]);
      for (int32_t c = 0; c < layer->channels; ++c) {
        int32_t sum = 0, most = INT16_MIN;
        for (int32_t row = box[0]; row < box[1]; ++row) {
          const int16_t *pixel = in + (row * layer->in_width + box[2]) * layer->channels + c;
          for (int32_t column = box[2]; column < box[3]; ++column, pixel += layer->channels) {
            sum += *pixel;
            if (*pixel > most) most = *pixel;
          }
        }
        const int32_t half = sum > 0 ? count / 2 : -(count / 2);
        *out++ = (int16_t)clamp_word(averages ? (sum + half) / count : most, layer->low,
                                     layer->high);
      }
    }
}
