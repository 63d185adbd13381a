static void copy_bytes(const int8_t *in, int8_t *out, int32_t count) {
  for (int32_t i = 0; i < count; ++i) out[i] = in[i];
}
