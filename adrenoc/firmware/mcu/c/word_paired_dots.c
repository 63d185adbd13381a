/* Products of two pixels by two channels, two at once. */
static inline void word_dots(const int16_t *first, const int16_t *second, const int8_t *one,
                             const int8_t *two, int32_t count, int32_t *near, int32_t *far) {
  int32_t a = 0, b = 0, c = 0, d = 0;
  const int8_t *const end = one + (count & ~3);
  while (one < end) {
    const uint32_t left = load_word(one), right = load_word(two);
    const uint32_t even = even_bytes(left), odd = odd_bytes(left);
    const uint32_t even_two = even_bytes(right), odd_two = odd_bytes(right);
    uint32_t pair = load_word((const int8_t *)first);
    a = add_two(a, pair, even), b = add_two(b, pair, even_two);
    pair = load_word((const int8_t *)(first + 2));
    a = add_two(a, pair, odd), b = add_two(b, pair, odd_two);
    pair = load_word((const int8_t *)second);
    c = add_two(c, pair, even), d = add_two(d, pair, even_two);
    pair = load_word((const int8_t *)(second + 2));
    c = add_two(c, pair, odd), d = add_two(d, pair, odd_two);
    one += 4, two += 4, first += 4, second += 4;
  }
  for (int32_t i = 0; i < (count & 3); ++i) {
    const uint32_t near_pair = (uint16_t)first[i], far_pair = (uint16_t)second[i];
    const uint32_t by_one = (uint16_t)one[i], by_two = (uint16_t)two[i];
    a = add_two(a, near_pair, by_one), b = add_two(b, near_pair, by_two);
    c = add_two(c, far_pair, by_one), d = add_two(d, far_pair, by_two);
  }
  near[0] = a, near[1] = b, far[0] = c, far[1] = d;
}
