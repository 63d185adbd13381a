/* Activations of int16.  Inputs and outputs lie where int8 would, at even places. */
static inline int32_t clamp_word(int64_t value, int32_t low, int32_t high) {
  return value < low ? low : value > high ? high : (int32_t)value;
}
