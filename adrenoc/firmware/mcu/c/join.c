/* One part of a concatenation: chunks of `size` bytes, every `stride` bytes. */
static void join_part(const int8_t *in, int8_t *out, int32_t count, int32_t size,
                      int32_t stride) {
  for (int32_t i = 0; i < count; ++i, in += size, out += stride)
    for (int32_t k = 0; k < size; ++k) out[k] = in[k];
}
