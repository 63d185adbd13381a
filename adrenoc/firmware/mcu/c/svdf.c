/* Filters over time; what is kept of earlier calls is `state`, a row of int16 for each filter. */
typedef struct {
  int32_t depth, filters, memory, rank, zero_in, kept_multiplier, kept_shift;
  int32_t multiplier, shift, zero_out, low, high;
  const int8_t *feature;
  const int16_t *time;
  const int32_t *bias;
} svdf_layer;

static void svdf(const svdf_layer *layer, const int8_t *in, int8_t *out, int16_t *state) {
  const int32_t memory = layer->memory, kept = layer->filters * memory;
  const int8_t *feature = layer->feature;
  for (int32_t i = 1; i < kept; ++i) state[i - 1] = state[i];
  for (int32_t f = 0; f < layer->filters; ++f) {
    int32_t sum = 0;
    for (int32_t i = 0; i < layer->depth; ++i) sum += *feature++ * (in[i] - layer->zero_in);
    sum = requantise_twice(sum, layer->kept_multiplier, layer->kept_shift);
    state[f * memory + memory - 1] = (int16_t)clamp_int8(sum, INT16_MIN, INT16_MAX);
  }
  const int16_t *time = layer->time;
  for (int32_t unit = 0; unit * layer->rank < layer->filters; ++unit) {
    uint32_t total = (uint32_t)layer->bias[unit]; /* of 32 bits, which go around */
    for (int32_t i = layer->rank * memory; i > 0; --i)
      total += (uint32_t)((int32_t)*time++ * *state++);
    const int32_t sum = requantise_twice((int32_t)total, layer->multiplier, layer->shift) + layer->zero_out;
    out[unit] = (int8_t)clamp_int8(sum, layer->low, layer->high);
  }
}
