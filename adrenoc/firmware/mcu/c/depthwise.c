/* Depthwise 3x3 by strips: of four channels, pairs of rows lie as words of two int16 in planes, two
 * such pairs at a time, which take turns in being the upper one.  The border is in the planes. */
typedef void depthwise_function(const uint32_t *plane, int8_t *out, const int32_t *rule);
typedef struct {
  int32_t in_height, in_width, channels, out_height, out_width, rows, top, left, columns, zero;
  int32_t rule_words;
  const int32_t *rules;
  depthwise_function *code[2][2]; /* with the upper pair first or second, of one row or two */
} depthwise_layer;

static void pair_rows(const int8_t *upper, const int8_t *lower, int32_t upper_step,
                      int32_t lower_step, uint32_t *to, int32_t width, int32_t plane) {
  uint32_t *const second = to + plane, *const third = second + plane, *const fourth = third + plane;
  for (int32_t x = 0; x < 2 * width; x += 2, upper += upper_step, lower += lower_step) {
    const uint32_t a = load_word(upper), b = load_word(lower);
    const uint32_t a_even = even_bytes(a), b_even = even_bytes(b);
    const uint32_t a_odd = odd_bytes(a), b_odd = odd_bytes(b);
    to[x] = lower_halves(a_even, b_even);
    second[x] = lower_halves(a_odd, b_odd);
    third[x] = upper_halves(a_even, b_even);
    fourth[x] = upper_halves(a_odd, b_odd);
  }
}

static void load_pair(const depthwise_layer *layer, const int8_t *in, int32_t count, int32_t pair,
                      uint32_t *planes) {
  const int32_t zero_bytes = (int32_t)(0x01010101u * (uint8_t)layer->zero);
  const int32_t plane = 2 * layer->columns, row = 2 * pair - layer->top;
  const int8_t *rows[2];
  int32_t steps[2];
  uint32_t *const to = planes + 2 * layer->left + (pair & 1);
  for (int32_t i = 0; i < 2; ++i) {
    const int32_t inside = row + i >= 0 && row + i < layer->in_height;
    rows[i] = inside ? in + (row + i) * layer->in_width * layer->channels
                     : (const int8_t *)&zero_bytes;
    steps[i] = inside ? layer->channels : 0;
  }
  if (count == 4) {
    pair_rows(rows[0], rows[1], steps[0], steps[1], to, layer->in_width, plane);
    return;
  }
  for (int32_t j = 0; j < count; ++j)
    for (int32_t x = 0; x < layer->in_width; ++x)
      to[plane * j + 2 * x] = lower_halves((uint32_t)(int32_t)rows[0][x * steps[0] + j],
                                           (uint32_t)(int32_t)rows[1][x * steps[1] + j]);
}

static void run_depthwise(const depthwise_layer *layer, const int8_t *in, int8_t *out,
                          uint32_t *planes) {
  const int32_t channels = layer->channels, plane = 2 * layer->columns;
  const uint32_t zero = 0x00010001u * (uint16_t)(int16_t)layer->zero;
  const int32_t *rules = layer->rules;
  for (int32_t j = 0; j < 4 * plane; ++j) planes[j] = zero;
  for (int32_t c = 0; c < channels; c += 4, in += 4, rules += 4 * layer->rule_words) {
    const int32_t count = channels - c < 4 ? channels - c : 4;
    int8_t *row = out + c;
    load_pair(layer, in, count, 0, planes);
    for (int32_t pair = 0, y = 0; y < layer->out_height; ++pair, y += layer->rows) {
      load_pair(layer, in, count, pair + 1, planes);
      const int32_t both = layer->rows == 2 && y + 1 < layer->out_height;
      depthwise_function *const code = layer->code[pair & 1][both];
      const int32_t *rule = rules;
      for (int32_t j = 0; j < count; ++j, rule += layer->rule_words)
        code(planes + j * plane, row + j, rule);
      row += layer->rows * layer->out_width * channels;
    }
  }
}
