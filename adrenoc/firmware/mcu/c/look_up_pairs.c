/* Each pair of numbers by a table of 65,536. */
static void look_up_pairs(const int8_t *table, const int8_t *first, const int8_t *second,
                          int8_t *out, int32_t count) {
  for (int32_t i = 0; i < count; ++i) out[i] = table[256 * (first[i] + 128) + second[i] + 128];
}
