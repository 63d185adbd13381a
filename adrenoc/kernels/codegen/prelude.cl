// What kernels are written with beside OpenCL C.  A kernel's text begins with the sections that it
// calls for: each begins with the text that does, `//: TEXT`.  In a section whose text has a `#`
// that stands for 4, of a vector, or for nothing.  Lines of comments are for us alone.

// Bodies of what `tvmapi.load_vector` calls, as (pointer, base, offset).  Offsets are constants: of
// one base in bytes, an address takes four instructions less than of a sum.
//: LOAD_FLOAT4(
#define LOAD_FLOAT4(pointer, base, offset) (((__global const float4*)(pointer) + (base))[offset])
//: LOAD_INT4(
#define LOAD_INT4(pointer, base, offset) (((__global const int4*)(pointer) + (base))[offset])
//: LOAD_UINT4(
#define LOAD_UINT4(pointer, base, offset) (((__global const uint4*)((__global const char*)(pointer) + 16u * (uint)(base)))[offset])

// Of what `tvmapi.load_numbers` calls.
//: LOAD_NUMBER(
#define LOAD_NUMBER(pointer, base, offset) (((__global const float*)((__global const char*)(pointer) + 4u * (uint)(base)))[offset])
//: LOAD_NUMBERS(
#define LOAD_NUMBERS(pointer, base, offset) vload4(0, (__global const float*)((__global const char*)(pointer) + 4u * (uint)(base)) + (offset))
//: LOAD_ALIGNED(
#define LOAD_ALIGNED(pointer, base, offset) (*(__global const float4*)((__global const float*)((__global const char*)(pointer) + 4u * (uint)(base)) + (offset)))

// Four numbers at a multiple of four, to read and to write.
//: FLOATS_AT(
#define FLOATS_AT(pointer) (*(__global float4*)(pointer))
//: HALVES_AT(
#define HALVES_AT(pointer) (*(__global half4*)(pointer))

// Four halves as floats: in one load where the device has halves.  `vload_half4` promises the
// alignment of one half, so that compilers make four loads of it (`scripts/estimate_networks`: a
// 1x1 convolution 960-320@7 takes twice as long on an Adreno 660).
//: LOAD_HALF4(
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define LOAD_HALF4(pointer, base, offset) convert_float4(as_half4(((__global const uint2*)(pointer) + (base))[offset]))
#else
#define LOAD_HALF4(pointer, base, offset) vload_half4((base) + (offset), (__global const half*)(pointer))
#endif

// Signed bytes as floats; numbers of four bits with eight added, two to a byte, as floats.
//: LOAD_CHAR4(
#define LOAD_CHAR4(pointer, at) convert_float4(((__global const char4*)(pointer))[at])
//: LOAD_NIBBLES4(
static float4 LOAD_NIBBLES4(__global const void* pointer, int at) {
  const uint2 b = convert_uint2(((__global const uchar2*)pointer)[at]);
  return convert_float4((uint4)(b.x & 15u, b.x >> 4, b.y & 15u, b.y >> 4)) - 8.0f;
}

// Words into local memory as they are, where another type is read after a barrier.
//: SHARE_UINT4(
#define SHARE_UINT4(pointer, at, words) (((__local uint4*)(pointer))[at] = (words))

// Three bytes are a float without loss: ten instructions less than to convert each by itself.
//: PACK_BYTES(
#define PACK_BYTES(v) ((uint)mad((v).z, 65536.0f, mad((v).y, 256.0f, (v).x)) | ((uint)(v).w << 24))

//: WORDS_WHERE(
#define WORDS_WHERE(inside, words, word) ((inside) ? (words) : (uint4)(word))

// The larger and the smaller of two numbers, NaN where one is NaN: OpenCL C's own may give the other
// number, and GPUs do.  Compilers leave out the test of a constant.
//: LARGER#(
static float# LARGER#(float# a, float# b) {
  const float# most = select(a, b, a < b);
  return select(most, b, b != b);
}
//: SMALLER#(
static float# SMALLER#(float# a, float# b) {
  const float# least = select(a, b, b < a);
  return select(least, b, b != b);
}

// A quotient as IEEE 754 rounds it: a / b may be off by 2.5 units, and floor makes a whole one of that.
// What a first quotient leaves is exact; where there is none, as of a division by zero, it stays.
//: QUOTIENT#(
static float# QUOTIENT#(float# a, float# b) {
  const float# q = a / b;
  const float# better = q + fma(-q, b, a) / b;
  return select(q, better, isfinite(better));
}
//: LARGER_HALF4(
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
static half4 LARGER_HALF4(half4 a, half4 b) {
  const half4 most = select(a, b, a < b);
  return select(most, b, b != b);
}
//: SMALLER_HALF4(
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
static half4 SMALLER_HALF4(half4 a, half4 b) {
  const half4 least = select(a, b, b < a);
  return select(least, b, b != b);
}
//: LARGER_HALF(
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
static half LARGER_HALF(half a, half b) { return b != b || a < b ? b : a; }
//: SMALLER_HALF(
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
static half SMALLER_HALF(half a, half b) { return b != b || b < a ? b : a; }

// The error function, off by 4.2e-7 of it at most: a rational function of x in -4 to 4.  Compilers'
// own takes 180 instructions an element, and registers that leave half of the threads
// (`scripts/estimate_networks`).  Source of the coefficients: Eigen, as TensorFlow has them.  Its
// division is by the GPU's own reciprocal where `exact` is 0, which halves cannot tell apart: Newton's
// step makes up for drivers whose reciprocal has a dozen bits.
//: ERROR_FUNCTION#(
static float# ERROR_FUNCTION#(float# x, int exact) {
  float# a = select(select(x, (float#)(4.0f), x > 4.0f), (float#)(-4.0f), x < -4.0f), s = a * a;
  float# p = mad(s, (float#)(-2.72614225801306e-10f), (float#)(2.77068142495902e-08f));
  float# q = mad(s, (float#)(-1.45660718464996e-05f), (float#)(-2.13374055278905e-04f));
  p = mad(s, p, (float#)(-2.10102402082508e-06f));
  q = mad(s, q, (float#)(-1.68282697438203e-03f));
  p = mad(s, p, (float#)(-5.69250639462346e-05f));
  q = mad(s, q, (float#)(-7.37332916720468e-03f));
  p = mad(s, p, (float#)(-7.34990630326855e-04f));
  q = mad(s, q, (float#)(-1.42647390514189e-02f));
  p = mad(s, p, (float#)(-2.95459980854025e-03f));
  p = mad(s, p, (float#)(-1.60960333262415e-02f));
  const float# r = native_recip(q);
  return exact ? a * p / q : a * p * (r * mad(-q, r, (float#)(2.0f)));
}

// tanh, off by 3e-7 of it at most, in the same way: beyond 7.9 it is one, and what is near zero it is
// itself.  Compilers' own takes 58 instructions an element.  Source of the coefficients: Eigen.
//: TANH_FUNCTION#(
static float# TANH_FUNCTION#(float# x, int exact) {
  float# a = select(select(x, (float#)(7.905311f), x > 7.905311f), (float#)(-7.905311f), x < -7.905311f);
  float# s = a * a;
  float# p = mad(s, (float#)(-2.76076847742355e-16f), (float#)(2.00018790482477e-13f));
  float# q = mad(s, (float#)(1.19825839466702e-06f), (float#)(1.18534705686654e-04f));
  p = mad(s, p, (float#)(-8.60467152213735e-11f));
  q = mad(s, q, (float#)(2.26843463243900e-03f));
  p = mad(s, p, (float#)(5.12229709037114e-08f));
  q = mad(s, q, (float#)(4.89352518554385e-03f));
  p = mad(s, p, (float#)(1.48572235717979e-05f));
  p = mad(s, p, (float#)(6.37261928875436e-04f));
  p = mad(s, p, (float#)(4.89352455891786e-03f));
  const float# r = native_recip(q);
  return exact ? a * p / q : a * p * (r * mad(-q, r, (float#)(2.0f)));
}

// exp(x) - 1 and log(1 + x) with the digits that are left near zero.  For halves a polynomial does
// there, and elsewhere the GPU's own exponential: compilers' own functions take some forty
// instructions an element.
//: EXPM1_FUNCTION#(
static float# EXPM1_FUNCTION#(float# x, int exact) {
  const float# near = x * mad(x, mad(x, mad(x, (float#)(4.1666668e-2f), (float#)(1.6666667e-1f)), (float#)(0.5f)), (float#)(1.0f));
  return exact ? expm1(x) : select(native_exp(x) - (float#)(1.0f), near, fabs(x) < 0.25f);
}
//: LOG1P_FUNCTION#(
static float# LOG1P_FUNCTION#(float# x, int exact) {
  const float# near = x * mad(x, mad(x, mad(x, (float#)(-0.25f), (float#)(3.3333334e-1f)), (float#)(-0.5f)), (float#)(1.0f));
  return exact ? log1p(x) : select(log((float#)(1.0f) + x), near, fabs(x) < 0.0625f);
}

// Dot products of four signed by four unsigned bytes: OpenCL's own where the device has them, else
// Qualcomm's, which takes the signed ones first (LiteRT's and ggml's kernels; Mesa's disassembly).
// They saturate, which no sum of `dot_products.MOST_PRODUCTS` does: the hardware's instruction does.
//: DOT_PRODUCT
#if defined(__opencl_c_integer_dot_product_input_4x8bit_packed)
#define DOT_PRODUCT(weights, word, total) dot_acc_sat_4x8packed_su_int(weights, word, total)
#elif defined(cl_qcom_dot_product8)
#pragma OPENCL EXTENSION cl_qcom_dot_product8 : enable
#define DOT_PRODUCT(weights, word, total) qcom_dot8_acc(weights, word, total)
#else
#define DOT_BYTE(weights, word, i, total) \
  mad24((int)as_char4(weights).s##i, (int)as_uchar4(word).s##i, total)
#define DOT_PRODUCT(weights, word, total) DOT_BYTE(weights, word, 0, DOT_BYTE(weights, word, 1, \
  DOT_BYTE(weights, word, 2, DOT_BYTE(weights, word, 3, total))))
#endif

//: DOT_PRODUCTS(
#define DOT_PRODUCTS(weights, word, total) ((int4)( \
  DOT_PRODUCT((weights).x, word, (total).x), DOT_PRODUCT((weights).y, word, (total).y), \
  DOT_PRODUCT((weights).z, word, (total).z), DOT_PRODUCT((weights).w, word, (total).w)))

// The same of one word of signed and four of unsigned bytes.
//: DOT_PRODUCTS_OF(
#define DOT_PRODUCTS_OF(word, weights, total) ((int4)( \
  DOT_PRODUCT(word, (weights).x, (total).x), DOT_PRODUCT(word, (weights).y, (total).y), \
  DOT_PRODUCT(word, (weights).z, (total).z), DOT_PRODUCT(word, (weights).w, (total).w)))

// Weights in the constant file (`families/conv/built_in_conv.py`).  A kernel that starts so has two
// pointers: `weights`, which waves copy from, and `place`, a buffer whose first bytes the file holds
// at first.  `slot` is where a wave's own vectors of eight halves begin.  The runtime defines
// CONSTANT_FILE where the driver's built-ins have passed its trial; elsewhere the threads of a
// work-group copy the same vectors to local memory.
//: START_CONSTANTS(
#ifdef CONSTANT_FILE
#pragma OPENCL EXTENSION cl_qcom_subgroup_uniform_load : enable
#pragma OPENCL EXTENSION cl_qcom_subgroup_constant_load : enable
#define COPIED_WEIGHTS __constant half8*
#define ALIKE_IN_A_WAVE __attribute__((sub_group_uniform))
#define CONSTANT_PLACE __constant half8*
#define IN_THE_FILE __attribute__((max_constant_size((FILE_BYTES))))
#define MOST_WAVES(waves) __attribute__((qcom_max_concurrent_subgroups(waves)))
#define START_CONSTANTS(place, weights, vectors, slots, waves) \
  const int slot = (int)(qcom_get_physical_sub_group_id() % (waves)) % (slots) * (vectors); \
  __constant half4* const file = (__constant half4*)&place[slot]
#define COPY_CONSTANTS(place, weights, first, vectors) \
  qcom_sub_group_constant_load8(place, weights, slot, first, vectors)
#define SHARE_CONSTANT(place, weights, first, vectors, shared, at)
#define AWAIT_CONSTANTS(place, weights) qcom_sub_group_sync(QCOM_CLK_CONST_LOAD_SYNC)
#define CONSTANT(shared, at) file[at]
#else
#define COPIED_WEIGHTS __global const uint* restrict
#define ALIKE_IN_A_WAVE
#define CONSTANT_PLACE __global const uint* restrict
#define IN_THE_FILE
#define MOST_WAVES(waves)
#define START_CONSTANTS(place, weights, vectors, slots, waves)
#define COPY_CONSTANTS(place, weights, first, vectors) barrier(CLK_LOCAL_MEM_FENCE)
#define SHARE_CONSTANT(place, weights, first, vectors, shared, at) \
  if ((at) < (vectors)) ((__local uint4*)shared)[at] = ((__global const uint4*)weights)[(first) + (at)]
#define AWAIT_CONSTANTS(place, weights) barrier(CLK_LOCAL_MEM_FENCE)
#define CONSTANT(shared, at) shared[at]
#endif

// Products of tiles by matrix units, which all threads of a sub-group make together
// (`families/conv/built_in_conv.py`), by the words of the draft of cl_khr_cooperative_matrix: a variable
// is declared before it is assigned, as loads take their type from it.  The runtime defines
// MATRIX_UNITS where the driver's built-ins have passed its trial; elsewhere each thread makes some
// elements of each tile.
//: START_MATRICES(
#define SIDE 16
#ifdef MATRIX_UNITS
#pragma OPENCL EXTENSION cl_khr_cooperative_matrix : enable
typedef half __attribute__((coop_mat(CLK_COOPERATIVE_MATRIX_SCOPE_SUBGROUP, SIDE, SIDE, CLK_COOPERATIVE_MATRIX_A))) left_tile;
typedef half __attribute__((coop_mat(CLK_COOPERATIVE_MATRIX_SCOPE_SUBGROUP, SIDE, SIDE, CLK_COOPERATIVE_MATRIX_B))) right_tile;
typedef float __attribute__((coop_mat(CLK_COOPERATIVE_MATRIX_SCOPE_SUBGROUP, SIDE, SIDE, CLK_COOPERATIVE_MATRIX_ACCUMULATOR))) sum_tile;
#define START_MATRICES(thread, threads)
#define NEW_SUM(k, threads) sum_tile sum##k; sum##k = coop_mat_init(0.0f)
#define LOAD_LEFT(i, shared, at, stride) \
  left_tile left##i; \
  left##i = coop_mat_load((__local const half*)(shared) + (at), CLK_COOPERATIVE_MATRIX_LAYOUT_ROW_MAJOR, stride)
#define LOAD_RIGHT(j, weights, at, stride) \
  right_tile right##j; \
  right##j = coop_mat_load((__global const half*)(weights) + (at), CLK_COOPERATIVE_MATRIX_LAYOUT_ROW_MAJOR, stride)
#define ADD_PRODUCT(k, i, j) sum##k = coop_mat_mulAdd(left##i, right##j, sum##k)
#define STORE_SUM(k, shared, at, stride) \
  coop_mat_store((__local float*)(shared) + (at), sum##k, CLK_COOPERATIVE_MATRIX_LAYOUT_ROW_MAJOR, stride)
#else
#define START_MATRICES(thread, threads) const int matrix_thread = thread, matrix_threads = threads
#define NEW_SUM(k, threads) float sum##k[SIDE * SIDE / (threads)] = {0.0f}
#define LOAD_LEFT(i, shared, at, stride) \
  __local const half* const left##i = (__local const half*)(shared) + (at); \
  const int of_left##i = stride
#define LOAD_RIGHT(j, weights, at, stride) \
  __global const half* const right##j = (__global const half*)(weights) + (at); \
  const int of_right##j = stride
#define ADD_PRODUCT(k, i, j) \
  for (int e = 0; e < SIDE * SIDE; e += matrix_threads) { \
    const int row = (e + matrix_thread) / SIDE, column = (e + matrix_thread) % SIDE; \
    for (int term = 0; term < SIDE; ++term) \
      sum##k[e / matrix_threads] += (float)left##i[row * of_left##i + term] * (float)right##j[term * of_right##j + column]; \
  }
#define STORE_SUM(k, shared, at, stride) \
  for (int e = 0; e < SIDE * SIDE; e += matrix_threads) \
    ((__local float*)(shared))[(at) + (e + matrix_thread) / SIDE * (stride) + (e + matrix_thread) % SIDE] = sum##k[e / matrix_threads]
#endif

// Where a texel lies in an image whose layers stand beside each other, of `width` columns each.  A
// column of no layer is beyond the image for every layer: images have half as many columns at most.
//: BESIDE(
#define BESIDE(width, x, y, layer) ((int2)((layer) * (width) + ((uint)(x) < (uint)(width) ? (x) : -32768), y))

// The same where layers stand in bands, of so many that a shift finds both: rows are sent away too.
//: IN_BANDS(
#define IN_BANDS(width, rows, shift, x, y, layer) ((int2)(((layer) & ((1 << (shift)) - 1)) * (width) + ((uint)(x) < (uint)(width) && (uint)(y) < (uint)(rows) ? (x) : -32768), ((layer) >> (shift)) * (rows) + (y)))

// True, for a positive number, as no launch has so many work-groups; but compilers do not know.
//: ALWAYS(
#define ALWAYS(number) ((int)get_num_groups(2) != -(number))

// Zero, by the same token: the bound of a loop that stays a loop, for hints are ignored.
//: + ROLLED;
#define ROLLED ((int)get_num_groups(2) >> 30)
