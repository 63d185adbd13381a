/* Filters of int16 by weights of int8.  Zero points are zero, so that borders add nothing.
 * Sums of at most `piece` products fit into 32 bits. */
enum { WORD_HIGH, WORD_FIFTEEN, WORD_TWICE, WORD_REAL, WORD_SHORT_REAL };
typedef struct {
  int32_t in_height, in_width, in_channels, out_height, out_width, out_channels;
  int32_t kernel_height, kernel_width, stride_y, stride_x, dilation_y, dilation_x, top, left;
  int32_t low, high, taps, piece, way;
  const int8_t *weights;
  const int16_t *pairs;
  const int32_t *bias;
  const int64_t *wide_bias; /* in place of `bias` */
  const int32_t *multiplier;
  const uint32_t *fraction; /* 32 bits more of multipliers that are real numbers */
  const int32_t *nudge;
  const int8_t *shift;
} word_layer;

/* A number of 53 bits times a sum, halves away from zero. */
static inline int32_t word_real(int64_t sum, const word_layer *layer, int32_t c) {
  const uint64_t size = sum < 0 ? UINT64_C(0) - (uint64_t)sum : (uint64_t)sum;
  const uint64_t low = layer->fraction[c];
  const uint64_t product = size * (uint32_t)layer->multiplier[c] + (size >> 32) * low +
                           (((uint32_t)size * low) >> 32);
  const int32_t shift = layer->shift[c];
  const uint64_t near =
      (product + (UINT64_C(1) << (shift - 1)) + (uint32_t)layer->nudge[c]) >> shift;
  const int32_t whole = near > 65535 ? 65535 : (int32_t)near;
  return sum < 0 ? -whole : whole;
}
static __attribute__((noinline)) int16_t word_store(const word_layer *layer, int64_t sum,
                                                    int32_t c) {
  const int32_t shift = layer->shift[c];
  int64_t value;
  sum += layer->bias ? layer->bias[c] : layer->wide_bias[c];
  if (layer->way == WORD_HIGH) {
    const int32_t high = (int32_t)(((int64_t)(int32_t)sum * layer->multiplier[c]) >> 32);
    value = (high + (1 << (shift - 1))) >> shift;
  } else if (layer->way == WORD_FIFTEEN) {
    value = (sum * layer->multiplier[c] + (INT64_C(1) << (shift - 1))) >> shift;
  } else if (layer->way == WORD_TWICE) {
    value = requantise_twice((int32_t)sum, layer->multiplier[c], shift);
  } else {
    value = word_real(layer->way == WORD_REAL ? sum : (int32_t)sum, layer, c);
  }
  return (int16_t)clamp_word(value, layer->low, layer->high);
}
/* At most four sums of 32 bits, of channels from c on. */
static inline void word_store_run(const word_layer *layer, const int32_t *sums, int16_t *out,
                                  int32_t c, int32_t count) {
  if (layer->way != WORD_HIGH) {
    for (int32_t i = 0; i < count; ++i) out[i] = word_store(layer, sums[i], c + i);
    return;
  }
#if defined(__ARM_FEATURE_MVE)
  __asm__ volatile(
      "vctp.32 %[count]\n"
      "vpstttt\n"
      "vldrwt.u32 q0, [%[sums]]\n"
      "vldrwt.u32 q1, [%[bias]]\n"
      "vldrwt.u32 q2, [%[multiplier]]\n"
      "vldrbt.s32 q3, [%[shift]]\n"
      "vadd.i32 q0, q0, q1\n"
      "vneg.s32 q3, q3\n"
      "vmulh.s32 q0, q0, q2\n"
      "vdup.32 q1, %[low]\n"
      "vrshl.s32 q0, q0, q3\n"
      "vdup.32 q2, %[high]\n"
      "vmax.s32 q0, q0, q1\n"
      "vmin.s32 q0, q0, q2\n"
      "vpst\n"
      "vstrht.32 q0, [%[out]]\n"
      :
      : [count] "r"(count), [sums] "r"(sums), [bias] "r"(layer->bias + c),
        [multiplier] "r"(layer->multiplier + c), [shift] "r"(layer->shift + c),
        [low] "r"(layer->low), [high] "r"(layer->high), [out] "l"(out)
      : "q0", "q1", "q2", "q3", "memory", "cc");
#else
  const int32_t low = layer->low, most = layer->high;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t sum = sums[i] + layer->bias[c + i], shift = layer->shift[c + i];
    const int32_t high = (int32_t)(((int64_t)sum * layer->multiplier[c + i]) >> 32);
    const int32_t value = (high + (1 << (shift - 1))) >> shift;
    out[i] = (int16_t)(value < low ? low : value > most ? most : value);
  }
#endif
}
