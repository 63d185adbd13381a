/* Numbers at another scale or width; those below zero may have a factor of their own. */
typedef struct {
  int32_t count, in_width, out_width, zero_in, above[2], below[2], zero_out, low, high;
} rescale_layer;

static void rescale(const rescale_layer *layer, const int8_t *in, int8_t *out) {
  for (int32_t i = 0; i < layer->count; ++i) {
    const int32_t stored = layer->in_width == 2 ? ((const int16_t *)in)[i] : in[i];
    const int32_t number = stored - layer->zero_in;
    const int32_t *const factor = number < 0 ? layer->below : layer->above;
    const int32_t value = requantise_twice(number, factor[0], factor[1]) + layer->zero_out;
    const int32_t held = clamp_word(value, layer->low, layer->high);
    if (layer->out_width == 2)
      ((int16_t *)out)[i] = (int16_t)held;
    else
      out[i] = (int8_t)held;
  }
}
