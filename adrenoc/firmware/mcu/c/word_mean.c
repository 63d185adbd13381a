/* Means of int16 over the middle one of three axes. */
typedef struct {
  int32_t outer, count, inner, multiplier, shift, low, high;
} word_mean_layer;

static void word_mean(const word_mean_layer *layer, const int8_t *source, int8_t *result) {
  const int16_t *in = (const int16_t *)source;
  int16_t *out = (int16_t *)result;
  for (int32_t o = 0; o < layer->outer; ++o, in += layer->count * layer->inner)
    for (int32_t i = 0; i < layer->inner; ++i) {
      int32_t sum = 0;
      for (int32_t k = 0; k < layer->count; ++k) sum += in[k * layer->inner + i];
      const int32_t value = requantise_twice(sum, layer->multiplier, layer->shift);
      *out++ = (int16_t)clamp_word(value, layer->low, layer->high);
    }
}
