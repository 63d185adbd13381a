/* Bytes become words of two int16: of three pixels side by side, and of weights. */
#if defined(__ARM_FEATURE_DSP)
__attribute__((naked, noinline)) static void widen_three(const int8_t *a, const int8_t *b,
                                                         const int8_t *c, uint32_t *to,
                                                         const int8_t *a_end) {
  __asm__ volatile(
      ".syntax unified\n"
      "push {r4-r9}\n"
      "ldr r12, [sp, #24]\n"
      "1:\n"
      "ldr r4, [r0], #4\n"
      "ldr r5, [r1], #4\n"
      "ldr r6, [r2], #4\n"
      "sxtb16 r7, r4, ror #8\n"
      "sxtb16 r8, r5, ror #8\n"
      "sxtb16 r9, r6, ror #8\n"
      "sxtb16 r4, r4\n"
      "sxtb16 r5, r5\n"
      "sxtb16 r6, r6\n"
      "stmia r3!, {r4-r9}\n"
      "cmp r0, r12\n"
      "bne 1b\n"
      "pop {r4-r9}\n"
      "bx lr\n");
}
__attribute__((naked, noinline)) static void widen_two_rows(const uint32_t *from, uint32_t *to,
                                                            const uint32_t *to_end) {
  __asm__ volatile(
      ".syntax unified\n"
      "push {r4-r10}\n"
      "1:\n"
      "ldmia r0!, {r3-r6}\n"
      "sxtb16 r7, r3\n"
      "sxtb16 r8, r4\n"
      "sxtb16 r9, r3, ror #8\n"
      "sxtb16 r10, r4, ror #8\n"
      "stmia r1!, {r7-r10}\n"
      "sxtb16 r7, r5\n"
      "sxtb16 r8, r6\n"
      "sxtb16 r9, r5, ror #8\n"
      "sxtb16 r10, r6, ror #8\n"
      "stmia r1!, {r7-r10}\n"
      "cmp r1, r2\n"
      "bne 1b\n"
      "pop {r4-r10}\n"
      "bx lr\n");
}
#else
static void widen_three(const int8_t *a, const int8_t *b, const int8_t *c, uint32_t *to,
                        const int8_t *a_end) {
  for (; a != a_end; a += 4, b += 4, c += 4, to += 6) {
    const uint32_t fours[3] = {load_word(a), load_word(b), load_word(c)};
    for (int32_t i = 0; i < 3; ++i) {
      to[i] = even_bytes(fours[i]);
      to[3 + i] = odd_bytes(fours[i]);
    }
  }
}
static void widen_two_rows(const uint32_t *from, uint32_t *to, const uint32_t *to_end) {
  for (; to != to_end; from += 2, to += 4) {
    to[0] = even_bytes(from[0]);
    to[1] = even_bytes(from[1]);
    to[2] = odd_bytes(from[0]);
    to[3] = odd_bytes(from[1]);
  }
}
#endif
static void widen_row(const uint32_t *from, uint32_t *to, const uint32_t *to_end) {
  for (; to != to_end; ++from, to += 2) {
    to[0] = even_bytes(*from);
    to[1] = odd_bytes(*from);
  }
}
