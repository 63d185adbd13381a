/* The sum of products of bytes. */
#if defined(__ARM_FEATURE_MVE)
static inline int32_t byte_dot(const int8_t *a, const int8_t *b, int32_t count) {
  int32_t sum = 0;
  __asm__ volatile(
      "dlstp.8 lr, %[count]\n"
      "1:\n"
      "vldrb.u8 q0, [%[a]], #16\n"
      "vldrb.u8 q1, [%[b]], #16\n"
      "vmladava.s8 %[sum], q0, q1\n"
      "letp lr, 1b\n"
      : [a] "+r"(a), [b] "+r"(b), [sum] "+Te"(sum)
      : [count] "r"(count)
      : "q0", "q1", "lr", "memory", "cc");
  return sum;
}
#elif defined(__ARM_FEATURE_DSP)
static inline int32_t byte_dot(const int8_t *a, const int8_t *b, int32_t count) {
  int32_t sum = 0;
  for (; count >= 4; count -= 4, a += 4, b += 4) {
    const uint32_t left = load_word(a), right = load_word(b);
    sum = add_two(sum, even_bytes(left), even_bytes(right));
    sum = add_two(sum, odd_bytes(left), odd_bytes(right));
  }
  for (; count > 0; --count) sum += *a++ * *b++;
  return sum;
}
#else
static inline int32_t byte_dot(const int8_t *a, const int8_t *b, int32_t count) {
  int32_t sum = 0;
  for (int32_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}
#endif
