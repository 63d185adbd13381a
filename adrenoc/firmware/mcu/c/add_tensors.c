/* Sums of two numbers, which have tables of what they are when scaled. */
typedef struct {
  const int32_t *first, *second;
  int32_t count, multiplier, shift, zero_out, low, high;
} sum_layer;

static void add_tensors(const sum_layer *layer, const int8_t *first, const int8_t *second,
                        int8_t *out) {
  for (int32_t i = 0; i < layer->count; ++i) {
    const int32_t sum = layer->first[first[i] + 128] + layer->second[second[i] + 128];
    const int32_t value =
        requantise_twice(sum, layer->multiplier, layer->shift) + layer->zero_out;
    out[i] = (int8_t)clamp_int8(value, layer->low, layer->high);
  }
}
