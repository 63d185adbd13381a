/* Runs of bytes, copied or filled: by vectors that may overlap, so that none has a tail. */
#if defined(__aarch64__)
#include <arm_neon.h>
static inline void copy_run(const int8_t *from, int8_t *to, int32_t count) {
  if (count >= 16) {
    int32_t i = 0;
    for (; i < count - 16; i += 16) vst1q_s8(to + i, vld1q_s8(from + i));
    vst1q_s8(to + count - 16, vld1q_s8(from + count - 16));
  } else if (count >= 8) {
    const int8x8_t end = vld1_s8(from + count - 8);
    vst1_s8(to, vld1_s8(from));
    vst1_s8(to + count - 8, end);
  } else {
    for (int32_t i = 0; i < count; ++i) ((volatile int8_t *)to)[i] = from[i];
  }
}
static inline void fill_run(int8_t *to, int32_t value, int32_t count) {
  const int8x16_t all = vdupq_n_s8((int8_t)value);
  int32_t i = 0;
  for (; i + 16 <= count; i += 16) vst1q_s8(to + i, all);
  for (; i < count; ++i) ((volatile int8_t *)to)[i] = (int8_t)value;
}
#else
static inline void copy_run(const int8_t *from, int8_t *to, int32_t count) {
  for (int32_t i = 0; i < count; ++i) to[i] = from[i];
}
static inline void fill_run(int8_t *to, int32_t value, int32_t count) {
  for (int32_t i = 0; i < count; ++i) to[i] = (int8_t)value;
}
#endif
