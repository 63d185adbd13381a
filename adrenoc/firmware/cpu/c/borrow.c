/* Weights that a GPU's kernels have in an order of their own, brought into tiles of sixteen channels
 * by blocks of eight inputs.  An element of theirs lies where the places of its indices add up to:
 * output channel, row and column of the window, input channel.  A place is a sum over digits of the
 * index, the last of which has no bound. */
typedef struct {
  int32_t radix, stride;
} digit_t;
typedef struct {
  int8_t *to;
  int32_t param, width; /* which one; bytes of an element: int8, float16 or float32 */
  int32_t counts[4], blocks;
  digit_t digits[4][MODEL_MOST_DIGITS];
  int32_t first;
  /* Which channels these are, where some are left out: -1 where weights are zero; else NULL. */
  const int32_t *rows, *columns;
} shared_weight_t;

static int32_t place_of(const digit_t *digits, int32_t index) {
  int32_t at = 0;
  for (; index; index /= digits->radix, ++digits) at += index % digits->radix * digits->stride;
  return at;
}
/* A whole number of -128 to 127, in whatever form. */
static int8_t whole_of(const uint8_t *at, int32_t width) {
  if (width == 1) return (int8_t)*at;
  const int32_t fraction = width == 2 ? 10 : 23, bias = width == 2 ? 15 : 127;
  uint32_t bits = 0;
  for (int32_t i = 0; i < width; ++i) bits |= (uint32_t)at[i] << 8 * i;
  const uint32_t magnitude = bits & ((1u << (8 * width - 1)) - 1);
  const int32_t exponent = (int32_t)(magnitude >> fraction) - bias;
  if (exponent < 0) return 0;
  const uint32_t digits = (magnitude & ((1u << fraction) - 1)) | 1u << fraction;
  const int32_t number = (int32_t)(digits >> (fraction - exponent));
  return (int8_t)(bits >> (8 * width - 1) ? -number : number);
}
static void borrow(const shared_weight_t *weight, const uint8_t *from) {
  const int32_t *counts = weight->counts, run = weight->digits[3][0].radix;
  const int32_t step = weight->digits[3][0].stride;
  for (int32_t o = 0; o < counts[0]; ++o) {
    int8_t *const to = weight->to + (o / 16 * weight->blocks * 16 + o % 16) * 8;
    const int32_t row = weight->rows ? weight->rows[o] : o;
    if (row < 0) continue;
    const int32_t of_channel = weight->first + place_of(weight->digits[0], row);
    int32_t k = 0;
    for (int32_t y = 0; y < counts[1]; ++y)
      for (int32_t x = 0; x < counts[2]; ++x) {
        const int32_t of_tap =
            of_channel + place_of(weight->digits[1], y) + place_of(weight->digits[2], x);
        for (int32_t c = 0, most; c < counts[3]; c += most) {
          const int32_t column = weight->columns ? weight->columns[c] : c;
          most = weight->columns ? 1 : counts[3] - c < run ? counts[3] - c : run;
          if (column < 0) {
            ++k;
            continue;
          }
          const int32_t at = of_tap + place_of(weight->digits[3], column);
          for (int32_t i = 0; i < most; ++i, ++k) {
            const uint8_t *const element = from + (int64_t)(at + i * step) * weight->width;
            to[k / 8 * 128 + k % 8] = whole_of(element, weight->width);
          }
        }
      }
  }
}
