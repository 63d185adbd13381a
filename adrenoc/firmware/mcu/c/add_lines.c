/* Sums of two tensors: each number times a factor of its tensor, and one shift. */
typedef struct {
  int32_t first, second, offset, shift, low, high;
} line_layer;

#if defined(__ARM_FEATURE_MVE)
__attribute__((naked, noinline)) static void add_lines(const line_layer *layer,
                                                       const int8_t *first, const int8_t *second,
                                                       int8_t *out, int32_t count) {
  __asm__ volatile(
      ".syntax unified\n"
      "push {r4-r9, lr}\n"
      "ldr r12, [sp, #28]\n"
      "ldmia r0, {r4-r9}\n"
      "rsb r7, r7, #0\n"
      "vdup.32 q2, r8\n"
      "vdup.32 q3, r9\n"
      "wlstp.32 lr, r12, 2f\n"
      "1:\n"
      "vldrb.s32 q0, [r1], #4\n"
      "vldrb.s32 q1, [r2], #4\n"
      "vmul.i32 q0, q0, r4\n"
      "vmla.s32 q0, q1, r5\n"
      "vadd.i32 q0, q0, r6\n"
      "vshl.s32 q0, r7\n"
      "vmax.s32 q0, q0, q2\n"
      "vmin.s32 q0, q0, q3\n"
      "vstrb.32 q0, [r3], #4\n"
      "letp lr, 1b\n"
      "2:\n"
      "pop {r4-r9, pc}\n");
}
#else
static void add_lines(const line_layer *layer, const int8_t *first, const int8_t *second,
                      int8_t *out, int32_t count) {
  const int32_t a = layer->first, b = layer->second, offset = layer->offset;
  const int32_t shift = layer->shift, low = layer->low, high = layer->high;
  for (const int8_t *const end = first + count; first != end;) {
    const int32_t sum = *first++ * a + *second++ * b + offset;
    *out++ = (int8_t)clamp_int8(sum >> shift, low, high);
  }
}
#endif
