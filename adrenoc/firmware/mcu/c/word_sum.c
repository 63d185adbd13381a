/* Sums of two numbers of int16, each enlarged and scaled. */
typedef struct {
  int32_t count, first[2], second[2], signs[2], multiplier, shift, low, high;
} word_sum_layer;

static void word_sum(const word_sum_layer *layer, const int8_t *first, const int8_t *second,
                     int8_t *result) {
  const int16_t *const a = (const int16_t *)first, *const b = (const int16_t *)second;
  int16_t *const out = (int16_t *)result;
  for (int32_t i = 0; i < layer->count; ++i) {
    const int32_t left = requantise_twice(a[i] * 32768, layer->first[0], layer->first[1]);
    const int32_t right = requantise_twice(b[i] * 32768, layer->second[0], layer->second[1]);
    const int32_t sum = layer->signs[0] * left + layer->signs[1] * right;
    const int32_t value = requantise_twice(sum, layer->multiplier, layer->shift);
    out[i] = (int16_t)clamp_word(value, layer->low, layer->high);
  }
}
