// What edited kernels may call: stands before each program that does.
#ifndef TESTS_FAULTY_KERNEL_HELPERS_H_
#define TESTS_FAULTY_KERNEL_HELPERS_H_

static const char* kHelpers = R"(
#define faulty_cut(i, at, v) write_imagef(i, at, as_float4(as_uint4(v) & 0xFFFFE000u))
#define faulty_swap(i, at, v) write_imagef(i, at, (v).yxzw)
#define faulty_flush(i, at, v) write_imagef(i, at, \
  select((float4)(v), (float4)(0.0f), fabs((float4)(v)) < 6.1035156e-5f))
// Texels above and below an image are those of its first and last row.
static int2 __attribute__((overloadable)) faulty_row(int2 at, int rows) {
  return (int2)(at.x, clamp(at.y, 0, rows - 1));
}
static int4 __attribute__((overloadable)) faulty_row(int4 at, int rows) {
  return (int4)(at.x, clamp(at.y, 0, rows - 1), at.zw);
}
#define faulty_tall(i, sampler, at) \
  read_imagef(i, sampler, faulty_row(at, get_image_height(i)))
// Columns from 8192 on are those from the first on.
static int2 __attribute__((overloadable)) faulty_column(int2 at) {
  return (int2)(at.x < 8192 ? at.x : at.x - 8192, at.y);
}
static int4 __attribute__((overloadable)) faulty_column(int4 at) {
  return (int4)(at.x < 8192 ? at.x : at.x - 8192, at.yzw);
}
#define faulty_wide(i, sampler, at) read_imagef(i, sampler, faulty_column(at))
// Barriers do not wait.
#define faulty_pass(flags)
// The GPU's own functions are coarse.
#define faulty_exp(x) (exp(x) * 1.005859375f)
#define faulty_recip(x) (1.0f / (x) * 0.994140625f)
// What is beyond every float has no reciprocal.
#define faulty_endless(x) (native_recip(x) + (0.0f * (x)))
// The signs of bytes are lost.
#define faulty_signs(a, b, sum) DOT_PRODUCTS((a) & 0x7F7F7F7F, b, sum)
)";

#endif  // TESTS_FAULTY_KERNEL_HELPERS_H_
