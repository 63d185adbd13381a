/* Products of two pixels by two channels. */
static inline void word_dots(const int16_t *first, const int16_t *second, const int8_t *one,
                             const int8_t *two, int32_t count, int32_t *near, int32_t *far) {
  uint32_t a = 0, b = 0, c = 0, d = 0; /* of 32 bits, which may go around */
  for (int32_t i = 0; i < count; ++i) {
    a += (uint32_t)(first[i] * one[i]);
    b += (uint32_t)(first[i] * two[i]);
    c += (uint32_t)(second[i] * one[i]);
    d += (uint32_t)(second[i] * two[i]);
  }
  near[0] = (int32_t)a, near[1] = (int32_t)b, far[0] = (int32_t)c, far[1] = (int32_t)d;
}
