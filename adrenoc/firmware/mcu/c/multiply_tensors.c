/* Products of two numbers, each less its zero point. */
typedef struct {
  int32_t count, zero_first, zero_second, multiplier, shift, zero_out, low, high;
  int32_t once;            /* whether it is one product in 64 bits, with this offset */
  single_function *single; /* where the multiplier is the bits of a float32 */
  int64_t offset;
} product_of_two_layer;

static void multiply_tensors(const product_of_two_layer *layer, const int8_t *first,
                             const int8_t *second, int8_t *out) {
  for (int32_t i = 0; i < layer->count; ++i) {
    const int32_t product = (first[i] - layer->zero_first) * (second[i] - layer->zero_second);
    const int32_t value =
        layer->single ? layer->single(product, layer->multiplier, layer->zero_out)
        : layer->once
            ? requantise_once(product, layer->multiplier, layer->offset, layer->shift)
            : requantise_twice(product, layer->multiplier, layer->shift) + layer->zero_out;
    out[i] = (int8_t)clamp_int8(value, layer->low, layer->high);
  }
}
