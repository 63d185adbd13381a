/* A number of float32 as the nearest whole one, halves to even; beyond 512 it stays there. */
static inline int32_t nearest(float value) {
  const float near = value < -512.0f ? -512.0f : value > 512.0f ? 512.0f : value;
  /* What is added leaves no place for fractions. */
  const union { float number; int32_t bits; } whole = {near + 12582912.0f};
  return whole.bits - 0x4B400000;
}
static inline float float_of(int32_t bits) {
  const union { int32_t bits; float number; } real = {bits};
  return real.number;
}
