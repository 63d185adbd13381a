/* Pairs of int16 in a word, and how sums of their products become bytes. */
#if defined(__ARM_FEATURE_DSP)
static inline uint32_t even_bytes(uint32_t four) {
  uint32_t two;
  __asm__("sxtb16 %0, %1" : "=r"(two) : "r"(four));
  return two;
}
static inline uint32_t odd_bytes(uint32_t four) {
  uint32_t two;
  __asm__("sxtb16 %0, %1, ror #8" : "=r"(two) : "r"(four));
  return two;
}
static inline uint32_t lower_halves(uint32_t low, uint32_t high) {
  uint32_t two;
  __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(two) : "r"(low), "r"(high));
  return two;
}
static inline uint32_t upper_halves(uint32_t low, uint32_t high) {
  uint32_t two;
  __asm__("pkhtb %0, %2, %1, asr #16" : "=r"(two) : "r"(low), "r"(high));
  return two;
}
#else
static inline uint32_t even_bytes(uint32_t four) {
  return (uint16_t)(int8_t)four | (uint32_t)(uint16_t)(int8_t)(four >> 16) << 16;
}
static inline uint32_t odd_bytes(uint32_t four) { return even_bytes(four >> 8); }
static inline uint32_t lower_halves(uint32_t low, uint32_t high) {
  return (low & 0xffffu) | high << 16;
}
static inline uint32_t upper_halves(uint32_t low, uint32_t high) {
  return low >> 16 | (high & 0xffff0000u);
}
static inline int32_t add_pair(int32_t sum, uint32_t a, uint32_t b) {
  return sum + (int16_t)a * (int16_t)b + (int16_t)(a >> 16) * (int16_t)(b >> 16);
}
static inline int32_t requantise_high(int32_t sum, const int32_t *constants, int32_t shift) {
  const int64_t product = (int64_t)sum * constants[0] + ((int64_t)1 << 31);
  return ((int32_t)(product >> 32) + constants[1]) >> shift;
}
static inline int32_t requantise_doubled(int32_t sum, const int32_t *constants) {
  const int32_t high = (int32_t)(((int64_t)sum * constants[0] + ((int64_t)1 << 31)) >> 32);
  return (high + (high >> 31) + constants[1]) >> constants[2];
}
#endif
typedef struct __attribute__((packed, may_alias)) {
  uint32_t word;
} any_word;
static inline uint32_t load_word(const int8_t *from) { return ((const any_word *)from)->word; }
