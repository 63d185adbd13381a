/* Depthwise by strips: of eight channels, four rows of a column lie as the bytes of a word in
 * planes; pairs of rows take turns in being the upper one.  The border is in the planes. */
typedef void strip_function(const uint32_t *planes, int8_t *out, const int32_t *rule,
                            int32_t count);
typedef struct {
  int32_t in_height, in_width, channels, out_height, out_width, rows, top, left, columns, zero;
  int32_t rule_words;
  const int32_t *rules;
  strip_function *code[2][2]; /* with the upper pair first or second, of one row or two */
} vector_depthwise_layer;

#if defined(__ARM_FEATURE_MVE)
__attribute__((naked, noinline)) static void zip_rows(const int8_t *upper, const int8_t *lower,
                                                      int32_t upper_step, int32_t lower_step,
                                                      uint8_t *to, int32_t width, int32_t plane,
                                                      int32_t count) {
  __asm__ volatile(
      ".syntax unified\n"
      "push {r4-r7, lr}\n"
      "ldrd r4, r5, [sp, #20]\n"
      "ldrd r6, r7, [sp, #28]\n"
      "mov r12, #0\n"
      "vidup.u16 q2, r12, #1\n"
      "vmul.i16 q2, q2, r6\n"
      "vctp.16 r7\n"
      "dls lr, r5\n"
      "1:\n"
      "vpstt\n"
      "vldrbt.u16 q0, [r0]\n"
      "vldrbt.u16 q1, [r1]\n"
      "vsli.16 q0, q1, #8\n"
      "vstrh.16 q0, [r4, q2]\n"
      "add r0, r0, r2\n"
      "add r1, r1, r3\n"
      "add r4, r4, #4\n"
      "le lr, 1b\n"
      "pop {r4-r7, pc}\n");
}
#else
static void zip_rows(const int8_t *upper, const int8_t *lower, int32_t upper_step,
                     int32_t lower_step, uint8_t *to, int32_t width, int32_t plane,
                     int32_t count) {
  for (int32_t x = 0; x < width; ++x, upper += upper_step, lower += lower_step, to += 4)
    for (int32_t j = 0; j < count; ++j) {
      to[j * plane] = (uint8_t)upper[j];
      to[j * plane + 1] = (uint8_t)lower[j];
    }
}
#endif

static void zip_pair(const vector_depthwise_layer *layer, const int8_t *in, int32_t count,
                     int32_t pair, uint32_t *planes) {
  const uint32_t zero = 0x01010101u * (uint8_t)layer->zero, zeros[2] = {zero, zero};
  const int8_t *rows[2];
  int32_t steps[2];
  for (int32_t i = 0; i < 2; ++i) {
    const int32_t row = 2 * pair - layer->top + i;
    const int32_t inside = row >= 0 && row < layer->in_height;
    rows[i] = inside ? in + row * layer->in_width * layer->channels : (const int8_t *)zeros;
    steps[i] = inside ? layer->channels : 0;
  }
  zip_rows(rows[0], rows[1], steps[0], steps[1],
           (uint8_t *)(planes + layer->left) + 2 * (pair & 1), layer->in_width,
           4 * layer->columns, count);
}

static void run_vector_depthwise(const vector_depthwise_layer *layer, const int8_t *in, int8_t *out,
                                 uint32_t *planes) {
  const int32_t channels = layer->channels;
  const int32_t *rules = layer->rules;
  fill_run((int8_t *)planes, layer->zero, 32 * layer->columns);
  for (int32_t c = 0; c < channels; c += 8, in += 8, rules += 8 * layer->rule_words) {
    const int32_t count = channels - c < 8 ? channels - c : 8;
    int8_t *row = out + c;
    zip_pair(layer, in, count, 0, planes);
    for (int32_t pair = 0, y = 0; y < layer->out_height; ++pair, y += layer->rows) {
      zip_pair(layer, in, count, pair + 1, planes);
      const int32_t both = layer->rows == 2 && y + 1 < layer->out_height;
      layer->code[pair & 1][both](planes, row, rules, count);
      row += layer->rows * layer->out_width * channels;
    }
  }
}
