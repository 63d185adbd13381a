/* Products of two pixels by two channels, eight at once. */
#if defined(__ARM_FEATURE_MVE)
static inline void word_dots(const int16_t *first, const int16_t *second, const int8_t *one,
                             const int8_t *two, int32_t count, int32_t *near, int32_t *far) {
  int32_t a = 0, b = 0, c = 0, d = 0;
  __asm__ volatile(
      "dlstp.16 lr, %[count]\n"
      "1:\n"
      "vldrb.s16 q0, [%[one]], #8\n"
      "vldrh.u16 q2, [%[first]], #16\n"
      "vmladava.s16 %[a], q2, q0\n"
      "vldrb.s16 q1, [%[two]], #8\n"
      "vmladava.s16 %[b], q2, q1\n"
      "vldrh.u16 q3, [%[second]], #16\n"
      "vmladava.s16 %[c], q3, q0\n"
      "vmladava.s16 %[d], q3, q1\n"
      "letp lr, 1b\n"
      : [first] "+r"(first), [second] "+r"(second), [one] "+r"(one), [two] "+r"(two),
        [a] "+Te"(a), [b] "+Te"(b), [c] "+Te"(c), [d] "+Te"(d)
      : [count] "r"(count)
      : "q0", "q1", "q2", "q3", "lr", "memory", "cc");
  near[0] = a, near[1] = b, far[0] = c, far[1] = d;
}
#else
static inline void word_dots(const int16_t *first, const int16_t *second, const int8_t *one,
                             const int8_t *two, int32_t count, int32_t *near, int32_t *far) {
  for (int32_t i = 0; i < 4; ++i) {
    const int16_t *const pixel = i < 2 ? first : second;
    const int8_t *const weights = i & 1 ? two : one;
    uint32_t sum = 0;
    for (int32_t k = 0; k < count; ++k) sum += (uint32_t)(pixel[k] * weights[k]);
    (i < 2 ? near : far)[i & 1] = (int32_t)sum;
  }
}
#endif
