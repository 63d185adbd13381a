/* One number at a time, by a table. */
static void look_up(const int8_t *table, const int8_t *in, int8_t *out, int32_t count) {
  for (int32_t i = 0; i < count; ++i) out[i] = table[in[i] + 128];
}
