/* Each number by a table. */
#if defined(__ARM_FEATURE_MVE)
static void look_up(const int8_t *table, const int8_t *in, int8_t *out, int32_t count) {
  __asm__ volatile(
      "vmov.i8 q1, #128\n"
      "wlstp.8 lr, %[count], 2f\n"
      "1:\n"
      "vldrb.u8 q0, [%[in]], #16\n"
      "veor q0, q0, q1\n"
      "vldrb.u8 q2, [%[table], q0]\n"
      "vstrb.8 q2, [%[out]], #16\n"
      "letp lr, 1b\n"
      "2:\n"
      : [in] "+r"(in), [out] "+r"(out)
      : [table] "r"(table), [count] "r"(count)
      : "q0", "q1", "q2", "lr", "memory", "cc");
}
#else
static void look_up(const int8_t *table, const int8_t *in, int8_t *out, int32_t count) {
  for (int32_t i = 0; i < count; ++i) out[i] = table[in[i] + 128];
}
#endif
