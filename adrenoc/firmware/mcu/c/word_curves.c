/* The logistic function and tanh of int16: lines between points of a table. */
static inline void word_logistic(const uint16_t *points, const int8_t *source, int8_t *result,
                                 int32_t count, int32_t multiplier, int32_t shift) {
  const int16_t *const in = (const int16_t *)source;
  int16_t *const out = (int16_t *)result;
  const int32_t half = shift > 0 ? 1 << (shift - 1) : 0;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t number = (in[i] * multiplier + half) >> shift;
    const uint32_t size = (uint32_t)(number < 0 ? -number : number), place = size >> 9;
    uint32_t found = UINT32_C(32767) << 10;
    if (place < 255) {
      const uint32_t low = points[place], high = points[place + 1];
      found = (low << 9) + (size & 511) * (high - low);
    }
    out[i] = (int16_t)((number < 0 ? (UINT32_C(1) << 25) - found + 511 : found + 512) >> 10);
  }
}
static inline void word_tanh(const uint16_t *points, const int8_t *source, int8_t *result,
                             int32_t count, int32_t multiplier, int32_t shift) {
  const int16_t *const in = (const int16_t *)source;
  int16_t *const out = (int16_t *)result;
  const int32_t half = shift > 0 ? 1 << (shift - 1) : 0;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t number = (in[i] * multiplier + half) >> shift;
    const int32_t size = number < 0 ? -number : number, place = size >> 8;
    int32_t found = 0xFFFF << 8;
    if (place < 255) {
      const int32_t low = points[place], high = points[place + 1];
      found = (low << 8) + (size & 255) * (high - low);
    }
    const int32_t away = found - (1 << 23);
    out[i] = (int16_t)((number < 0 ? 127 - away : away + 128) >> 8);
  }
}
