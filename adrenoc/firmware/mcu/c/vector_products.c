/* Convolutions as products of bytes.  Pixels of a 1x1 window are read where they lie, up to
 * `direct`: whole vectors of the last ones would leave the image.  The others are gathered, a strip
 * at a time.  Functions are for pairs of pixels and for single ones, where they lie or gathered. */
typedef void vector_function(const int8_t *pixels, const int8_t *weights, const int32_t *rule,
                             int8_t *out, const int8_t *end, const int32_t *last);
typedef struct {
  patch_layer patch;
  int32_t pixels, channels, bytes, strip, direct, adds, group;
  line_layer sum; /* of what is computed here and `addend`, where `adds` */
  const int8_t *weights;
  const int32_t *rules, *rules_end;
  vector_function *code[2][2];
} vector_layer;

static void run_strip(const vector_layer *layer, const int8_t *pixels, int32_t count, int8_t *out,
                      int32_t gathered) {
  vector_function *const *const code = layer->code[gathered];
  const int32_t stride = gathered ? layer->bytes : layer->patch.depth;
  const int32_t many = count / layer->group * layer->group;
  const int8_t *const middle = pixels + many * stride;
  if (many)
    code[0](pixels, layer->weights, layer->rules, out, middle, layer->rules_end);
  if (many != count)
    code[1](middle, layer->weights, layer->rules, out + many * layer->channels,
            middle + (count - many) * stride, layer->rules_end);
}

static void run_vectors(const vector_layer *layer, const int8_t *in, const int8_t *addend,
                        int8_t *out, int8_t *scratch) {
  const int32_t channels = layer->channels;
  int8_t *const own = scratch + (layer->direct < layer->pixels ? layer->strip * layer->bytes : 0);
  for (int32_t first = 0, count; first < layer->pixels; first += count) {
    const int32_t gathered = first >= layer->direct;
    const int32_t left = (gathered ? layer->pixels : layer->direct) - first;
    const int32_t whole = !gathered && !layer->adds;
    count = whole || left < layer->strip ? left : layer->strip;
    const int8_t *pixels = in + first * layer->patch.depth;
    if (gathered) {
      pixels = scratch;
      for (int32_t i = 0; i < count; ++i)
        gather_bytes(&layer->patch, in, first + i, scratch + i * layer->bytes);
    }
    int8_t *const place = out + first * channels;
    run_strip(layer, pixels, count, layer->adds ? own : place, gathered);
    if (layer->adds)
      add_lines(&layer->sum, own, addend + first * channels, place, count * channels);
  }
}
