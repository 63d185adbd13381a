/* Sums of a window, of as many channels as lie side by side there. */
#if defined(__ARM_FEATURE_MVE)
#define POOLED 4
static inline void add_column(const int8_t *from, int32_t step, int32_t rows, int32_t lanes,
                              int32_t *sums) {
  __asm__ volatile(
      "vctp.32 %[lanes]\n"
      "vldrw.u32 q0, [%[sums]]\n"
      "wls lr, %[rows], 2f\n"
      "1:\n"
      "vpst\n"
      "vldrbt.s32 q1, [%[from]]\n"
      "add %[from], %[from], %[step]\n"
      "vadd.i32 q0, q0, q1\n"
      "le lr, 1b\n"
      "2:\n"
      "vstrw.32 q0, [%[sums]]\n"
      : [from] "+l"(from)
      : [step] "r"(step), [rows] "r"(rows), [lanes] "r"(lanes), [sums] "r"(sums)
      : "q0", "q1", "lr", "memory", "cc");
}
#else
#define POOLED 1
static inline void add_column(const int8_t *from, int32_t step, int32_t rows, int32_t lanes,
                              int32_t *sums) {
  (void)lanes;
  for (; rows > 0; --rows, from += step) *sums += *from;
}
#endif

static void average_pool(const pool_layer *layer, const int8_t *in, int8_t *out) {
  const int32_t channels = layer->channels;
  int32_t box[4];
  for (int32_t y = 0; y < layer->out_height; ++y)
    for (int32_t x = 0; x < layer->out_width; ++x, out += channels) {
      pool_window(layer, y, x, box);
      const int32_t width = box[3] - box[2], count = (box[1] - box[0]) * width;
      for (int32_t c = 0; c < channels; c += POOLED) {
        const int32_t lanes = channels - c < POOLED ? channels - c : POOLED;
        int32_t sums[POOLED] = {0};
        for (int32_t row = box[0]; row < box[1]; ++row)
          add_column(in + (row * layer->in_width + box[2]) * channels + c, channels, width, lanes,
                     sums);
        for (int32_t i = 0; i < lanes; ++i) {
          const int32_t half = sums[i] > 0 ? count / 2 : -(count / 2);
          out[c + i] = (int8_t)clamp_int8((sums[i] + half) / count, layer->low, layer->high);
        }
      }
    }
}
