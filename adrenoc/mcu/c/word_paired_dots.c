/* Products of two pixels by two channels, two at once. */
static inline void word_dots(const int16_t *first, const int16_t *second, const int8_t *one,
                             const int8_t *two, int32_t count, int32_t *near, int32_t *far) {
  int32_t a = 0, b = 0, c = 0, d = 0;
  const int8_t *const end = one + (count & ~3);
  while (one < end) {
    const int32_t left = *(const any_word *)one, right = *(const any_word *)two;
    const int32_t even = even_bytes(left), odd = odd_bytes(left);
    const int32_t even_two = even_bytes(right), odd_two = odd_bytes(right);
    int32_t pair = *(const any_word *)first;
    a = add_pair(pair, even, a), b = add_pair(pair, even_two, b);
    pair = *(const any_word *)(first + 2);
    a = add_pair(pair, odd, a), b = add_pair(pair, odd_two, b);
    pair = *(const any_word *)second;
    c = add_pair(pair, even, c), d = add_pair(pair, even_two, d);
    pair = *(const any_word *)(second + 2);
    c = add_pair(pair, odd, c), d = add_pair(pair, odd_two, d);
    one += 4, two += 4, first += 4, second += 4;
  }
  for (int32_t i = 0; i < (count & 3); ++i) {
    a = add_pair((uint16_t)first[i], one[i], a), b = add_pair((uint16_t)first[i], two[i], b);
    c = add_pair((uint16_t)second[i], one[i], c), d = add_pair((uint16_t)second[i], two[i], d);
  }
  near[0] = a, near[1] = b, far[0] = c, far[1] = d;
}
