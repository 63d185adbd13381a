// What cl_khr_cooperative_matrix gives sub-groups, for a device that has none: each thread holds whole
// tiles, and makes all of a product.
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
enum {
  CLK_COOPERATIVE_MATRIX_SCOPE_SUBGROUP = 3,
  CLK_COOPERATIVE_MATRIX_A,
  CLK_COOPERATIVE_MATRIX_B,
  CLK_COOPERATIVE_MATRIX_ACCUMULATOR,
  CLK_COOPERATIVE_MATRIX_LAYOUT_ROW_MAJOR
};
#define coop_mat(scope, rows, columns, use) ext_vector_type((rows) * (columns))
typedef half halves_of_a_tile __attribute__((ext_vector_type(256)));
typedef float floats_of_a_tile __attribute__((ext_vector_type(256)));
#define coop_mat_init(value) (value)
#define OF_MEMORY(space) \
  static halves_of_a_tile __attribute__((overloadable)) coop_mat_load(space const half* from, int layout, int stride) { \
    halves_of_a_tile tile = NAN; \
    for (int i = 0; layout == CLK_COOPERATIVE_MATRIX_LAYOUT_ROW_MAJOR && i < 256; ++i) tile[i] = from[i / 16 * stride + i % 16]; \
    return tile; \
  }
OF_MEMORY(__local)
OF_MEMORY(__global)
static floats_of_a_tile coop_mat_mulAdd(halves_of_a_tile left, halves_of_a_tile right, floats_of_a_tile sums) {
  for (int i = 0; i < 256; ++i)
    for (int term = 0; term < 16; ++term) sums[i] += (float)left[i / 16 * 16 + term] * (float)right[term * 16 + i % 16];
  return sums;
}
static void coop_mat_store(__local float* to, floats_of_a_tile tile, int layout, int stride) {
  for (int i = 0; layout == CLK_COOPERATIVE_MATRIX_LAYOUT_ROW_MAJOR && i < 256; ++i) to[i / 16 * stride + i % 16] = tile[i];
}
