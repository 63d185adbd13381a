/* Means over the middle one of three axes. */
typedef struct {
  int32_t outer, count, inner, zero_in, multiplier, shift, zero_out, low, high;
} mean_layer;

static void mean_of_axis(const mean_layer *layer, const int8_t *in, int8_t *out) {
  for (int32_t o = 0; o < layer->outer; ++o, in += layer->count * layer->inner)
    for (int32_t i = 0; i < layer->inner; ++i) {
      int32_t sum = -layer->zero_in * layer->count;
      for (int32_t k = 0; k < layer->count; ++k) sum += in[k * layer->inner + i];
      const int32_t value =
          requantise_twice(sum, layer->multiplier, layer->shift) + layer->zero_out;
      *out++ = (int8_t)clamp_int8(value, layer->low, layer->high);
    }
}
