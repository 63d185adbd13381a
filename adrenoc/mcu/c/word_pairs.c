/* Two products at once: numbers of 16 bits that lie side by side by weights in the order 0 2 1 3. */
typedef int32_t __attribute__((aligned(1), may_alias)) any_word;
#if defined(__ARM_FEATURE_DSP)
static inline int32_t add_pair(int32_t pair, int32_t weights, int32_t sum) {
  __asm__("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(pair), "r"(weights));
  return sum;
}
static inline int32_t even_bytes(int32_t word) {
  int32_t found;
  __asm__("sxtb16 %0, %1" : "=r"(found) : "r"(word));
  return found;
}
static inline int32_t odd_bytes(int32_t word) {
  int32_t found;
  __asm__("sxtb16 %0, %1, ror #8" : "=r"(found) : "r"(word));
  return found;
}
#else
static inline int32_t add_pair(int32_t pair, int32_t weights, int32_t sum) {
  const int32_t low = (int16_t)pair * (int16_t)weights, high = (pair >> 16) * (weights >> 16);
  return (int32_t)((uint32_t)sum + (uint32_t)low + (uint32_t)high);
}
static inline int32_t even_bytes(int32_t word) {
  return (int32_t)((uint32_t)(int8_t)(word >> 16) << 16 | (uint16_t)(int8_t)word);
}
static inline int32_t odd_bytes(int32_t word) { return even_bytes(word >> 8); }
#endif
