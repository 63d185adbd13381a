/* Depthwise windows of any size by strips: of four channels, the rows of an image that a window sees
 * lie as int16 in a ring, border and all, so that two neighbouring taps are one word.  Columns that
 * a dilated window sees lie next to each other: those of each remainder apart. */
typedef void paired_function(const int16_t *const *rows, int32_t first, int32_t second,
                             const uint32_t *weights, int32_t *sums);
enum { MOST_PAIRED_ROWS = 16 }; /* of a window */
typedef struct {
  plain_layer plain; /* its bias holds the input's zero point */
  int32_t ring, columns, part, channel_words;
  const uint32_t *pairs;
  paired_function *code;
} paired_layer;

#if defined(__ARM_FEATURE_DSP)
static inline int32_t multiply_pair(int32_t sum, uint32_t a, uint32_t b) {
  int32_t found;
  __asm__("smlad %0, %1, %2, %3" : "=r"(found) : "r"(a), "r"(b), "r"(sum));
  return found;
}
#else
static inline int32_t multiply_pair(int32_t sum, uint32_t a, uint32_t b) {
  return (int32_t)((uint32_t)sum + (uint32_t)((int16_t)a * (int16_t)b) +
                   (uint32_t)((int16_t)(a >> 16) * (int16_t)(b >> 16)));
}
#endif
static inline uint32_t load_two(const int16_t *from) { return load_word((const int8_t *)from); }

/* Row `row` of the image, in the place that it has in the ring; outside of it nothing but zeros. */
static void fill_ring_row(const paired_layer *layer, const int8_t *in, int32_t count, int32_t row,
                          int16_t *to) {
  const plain_layer *const plain = &layer->plain;
  const int32_t columns = layer->columns, channels = plain->in_channels;
  const int32_t step = plain->dilation_x;
  for (int32_t i = 0; i < 4 * columns; ++i) to[i] = (int16_t)plain->zero_in;
  if (row < 0 || row >= plain->in_height) return;
  const int8_t *from = in + row * plain->in_width * channels;
  int32_t at = plain->left / step, rest = plain->left - at * step;
  at += rest * layer->part;
  for (int32_t x = 0; x < plain->in_width; ++x, from += channels) {
    for (int32_t c = 0; c < count; ++c) to[c * columns + at] = from[c];
    at += layer->part;
    if (++rest == step) {
      rest = 0;
      at += 1 - step * layer->part;
    }
  }
}

static int32_t place_in_row(const paired_layer *layer, int32_t x) {
  const int32_t step = layer->plain.dilation_x, column = x * layer->plain.stride_x;
  if (step == 1) return column;
  const int32_t at = column / step;
  return at + (column - at * step) * layer->part;
}

static void run_paired_row(const paired_layer *layer, const int16_t *const *ring, int32_t channel,
                           int32_t offset, int8_t *out) {
  const plain_layer *const plain = &layer->plain;
  const uint32_t *const weights = layer->pairs + channel * layer->channel_words;
  const int32_t channels = plain->out_channels, width = plain->out_width;
  for (int32_t x = 0; x < width; x += 2) {
    const int32_t last = x + 1 < width ? x + 1 : x;
    int32_t sums[2] = {plain->bias[channel], plain->bias[channel]};
    layer->code(ring, offset + place_in_row(layer, x), offset + place_in_row(layer, last), weights,
                sums);
    out[x * channels] = plain_store(plain, sums[0], channel);
    out[last * channels] = plain_store(plain, sums[last - x], channel);
  }
}

static void run_paired(const paired_layer *layer, const int8_t *in, int8_t *out, int16_t *scratch) {
  const plain_layer *const plain = &layer->plain;
  const int32_t channels = plain->in_channels, size = 4 * layer->columns, ring = layer->ring;
  const int32_t reach = (plain->kernel_height - 1) * plain->dilation_y;
  const int16_t *rows[MOST_PAIRED_ROWS];
  for (int32_t c = 0; c < channels; c += 4) {
    const int32_t count = channels - c < 4 ? channels - c : 4;
    int32_t next = -plain->top;
    for (int32_t y = 0; y < plain->out_height; ++y) {
      const int32_t first = y * plain->stride_y - plain->top;
      if (next < first) next = first;
      for (; next <= first + reach; ++next)
        fill_ring_row(layer, in + c, count, next, scratch + (next + plain->top) % ring * size);
      for (int32_t ky = 0; ky < plain->kernel_height; ++ky)
        rows[ky] = scratch + (first + ky * plain->dilation_y + plain->top) % ring * size;
      int8_t *const row = out + y * plain->out_width * channels + c;
      for (int32_t j = 0; j < count; ++j)
        run_paired_row(layer, rows, c + j, j * layer->columns, row + j);
    }
  }
}
