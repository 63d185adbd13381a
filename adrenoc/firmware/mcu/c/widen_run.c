/* A run of bytes as words of two int16, `step` words from one to the next. */
static uint32_t *widen_run(const int8_t *from, int32_t count, uint32_t *to, int32_t step) {
  for (; count >= 4; count -= 4, from += 4, to += 2 * step) {
    const uint32_t four = load_word(from);
    to[0] = even_bytes(four);
    to[step] = odd_bytes(four);
  }
  if (count == 3) {
    *to = lower_halves((uint32_t)(int32_t)from[0], (uint32_t)(int32_t)from[2]);
    to += step;
    *to = (uint32_t)(int32_t)from[1];
    to += step;
  } else if (count == 2) {
    *to = lower_halves((uint32_t)(int32_t)from[0], (uint32_t)(int32_t)from[1]);
    to += step;
  } else if (count == 1) {
    *to = (uint32_t)(int32_t)from[0];
    to += step;
  }
  return to;
}
