/* Two products at once, added to a sum that may go around. */
static inline int32_t add_two(int32_t sum, uint32_t a, uint32_t b) {
#if defined(__ARM_FEATURE_DSP)
  __asm__("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(a), "r"(b));
  return sum;
#else
  const int32_t low = (int16_t)a * (int16_t)b, high = (int16_t)(a >> 16) * (int16_t)(b >> 16);
  return (int32_t)((uint32_t)sum + (uint32_t)low + (uint32_t)high);
#endif
}
