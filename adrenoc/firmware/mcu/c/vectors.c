/* What code for the vector extension has in common, and how its sums become bytes elsewhere. */
#if defined(__ARM_FEATURE_MVE)
static inline void copy_run(const int8_t *from, int8_t *to, int32_t count) {
  __asm__ volatile(
      "wlstp.8 lr, %2, 2f\n"
      "1:\n"
      "vldrb.u8 q0, [%0], #16\n"
      "vstrb.8 q0, [%1], #16\n"
      "letp lr, 1b\n"
      "2:\n"
      : "+r"(from), "+r"(to)
      : "r"(count)
      : "q0", "lr", "memory", "cc");
}
static inline void fill_run(int8_t *to, int32_t value, int32_t count) {
  __asm__ volatile(
      "vdup.8 q0, %1\n"
      "wlstp.8 lr, %2, 2f\n"
      "1:\n"
      "vstrb.8 q0, [%0], #16\n"
      "letp lr, 1b\n"
      "2:\n"
      : "+r"(to)
      : "r"(value), "r"(count)
      : "q0", "lr", "memory", "cc");
}
#else
static inline void copy_run(const int8_t *from, int8_t *to, int32_t count) {
  for (int32_t i = 0; i < count; ++i) to[i] = from[i];
}
static inline void fill_run(int8_t *to, int32_t value, int32_t count) {
  for (int32_t i = 0; i < count; ++i) to[i] = (int8_t)value;
}
static inline int32_t vector_shift(int32_t value, int32_t left) {
  return left >= 0 ? (int32_t)((uint32_t)value << left) : value >> -left;
}
static inline int32_t vector_high(int32_t sum, int32_t multiplier, int32_t offset, int32_t left) {
  const int64_t product = (int64_t)sum * multiplier + ((int64_t)1 << 31);
  return vector_shift((int32_t)(product >> 32) + offset, left);
}
static inline int32_t vector_twice(int32_t sum, int32_t multiplier, int32_t offset, int32_t left) {
  const int32_t high = (int32_t)(((int64_t)sum * multiplier + (1 << 30)) >> 31);
  return vector_shift(high + (high >> 31) + offset, left);
}
#endif
