/* Convolutions as products: a strip of pixels is widened, then all channels, two at a time. */
typedef void block_function(const uint32_t *pixels, const uint32_t *weights, const int32_t *rule,
                            int8_t *out, const uint32_t *end, const uint32_t *last);
typedef struct {
  patch_layer patch;
  int32_t pixels, channels, words, strip, plain_pixels, rule_words, spare_bytes;
  int32_t wide_weights, adds;
  line_layer sum; /* of what is computed here and `addend`, where `adds` */
  const uint32_t *weights;
  const int32_t *rules;
  block_function *blocks[2][3]; /* of one or two channels, by one to three pixels */
} product_layer;

static void run_products(const product_layer *layer, const int8_t *in, const int8_t *addend,
                         int8_t *out, uint32_t *scratch) {
  const int32_t words = layer->words, depth = layer->patch.depth;
  uint32_t *const rows = scratch, *const strip = rows + (layer->wide_weights ? 0 : 2 * words);
  int8_t *const spare = (int8_t *)(strip + layer->strip * words);
  int8_t *const own = spare + layer->spare_bytes;
  for (int32_t first = 0; first < layer->pixels; first += layer->strip) {
    const int32_t left = layer->pixels - first;
    const int32_t count = left < layer->strip ? left : layer->strip, threes = count / 3 * 3;
    uint32_t *to = strip;
    for (int32_t p = 0; p < threes; p += 3, to += 3 * words)
      if (layer->plain_pixels) {
        const int8_t *from = in + (first + p) * depth;
        widen_three(from, from + depth, from + 2 * depth, to, from + depth);
      } else {
        for (int32_t i = 0; i < 3; ++i)
          gather_patch(&layer->patch, in, first + p + i, to + i, 3, spare);
      }
    const int32_t rest = count - threes;
    for (int32_t i = 0; i < rest; ++i)
      gather_patch(&layer->patch, in, first + threes + i, to + i, rest, spare);
    const uint32_t *weights = layer->weights;
    const int32_t *rule = layer->rules;
    int8_t *const place = out + first * layer->channels;
    int8_t *row = layer->adds ? own : place;
    for (int32_t c = 0; c < layer->channels; c += 2, row += 2) {
      const int32_t both = layer->channels - c > 1;
      const uint32_t *const wide = layer->wide_weights ? weights : rows;
      const uint32_t *const last = wide + (both + 1) * words;
      if (!layer->wide_weights) {
        if (both) widen_two_rows(weights, rows, last);
        else widen_row(weights, rows, last);
      }
      block_function *const *blocks = layer->blocks[both];
      if (threes) blocks[2](strip, wide, rule, row, to, last);
      if (rest)
        blocks[rest - 1](to, wide, rule, row + threes * layer->channels, to + rest * words, last);
      weights += (both + 1) * (layer->wide_weights ? words : words / 2);
      rule += (both + 1) * layer->rule_words;
    }
    if (layer->adds)
      add_lines(&layer->sum, own, addend + first * layer->channels, place,
                count * layer->channels);
  }
}
