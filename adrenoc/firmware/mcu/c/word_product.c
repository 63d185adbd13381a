/* Products of two numbers of int16. */
typedef struct {
  int32_t count, multiplier, shift, low, high;
} word_product_layer;

static void word_product(const word_product_layer *layer, const int8_t *first,
                         const int8_t *second, int8_t *result) {
  const int16_t *const a = (const int16_t *)first, *const b = (const int16_t *)second;
  int16_t *const out = (int16_t *)result;
  for (int32_t i = 0; i < layer->count; ++i) {
    const int32_t value = requantise_twice(a[i] * b[i], layer->multiplier, layer->shift);
    out[i] = (int16_t)clamp_word(value, layer->low, layer->high);
  }
}
