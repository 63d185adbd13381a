/* Dense layers: one pixel at a time, four channels at a time. */
typedef void row_function(const uint32_t *pixels, const uint32_t *weights, const int32_t *rule,
                          int8_t *out, const uint32_t *end, const uint32_t *last);
typedef struct {
  int32_t pixels, depth, channels, words, rule_words, weight_words;
  const uint32_t *weights;
  const int32_t *rules;
  row_function *row;
} row_layer;

static void run_rows(const row_layer *layer, const int8_t *in, int8_t *out, uint32_t *wide) {
  const int32_t words = layer->words, whole = layer->channels & ~3;
  for (int32_t p = 0; p < layer->pixels; ++p, in += layer->depth, out += layer->channels) {
    const uint32_t *const middle = layer->weights + whole * layer->weight_words;
    widen_run(in, layer->depth, wide, 1);
    if (whole) layer->row(wide, layer->weights, layer->rules, out, wide + words, middle);
    if (whole != layer->channels) {
      int8_t four[4];
      layer->row(wide, middle, layer->rules + layer->rule_words * whole, four, wide + words,
                 middle + 4 * layer->weight_words);
      for (int32_t c = whole; c < layer->channels; ++c) out[c] = four[c - whole];
    }
  }
}
