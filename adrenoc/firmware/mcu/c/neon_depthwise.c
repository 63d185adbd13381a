/* Depthwise convolutions of any window: sixteen channels at once, products of two taps before they
 * are widened; with `careful` of one, since two products of -128 do not fit into sixteen bits. */
enum { MOST_TAPS = 128, WINDOW_CHANNELS = 8 };
/* One row of outputs or two, of three or four of the image; outside of it the step is nothing. */
typedef struct {
  const int8_t *rows[4];
  int64_t steps[4];
  int8_t *out[2];
  int64_t step, inner, left, right; /* `inner` outputs see no column beyond the right end */
  const int8_t *weights;
  int64_t blocks, columns;
  const int8_t *zeros;
  int64_t width;
} window_rows;
typedef void window_code(const window_rows *rows);
typedef struct {
  int32_t in_height, in_width, channels, out_height, out_width;
  int32_t kernel_height, kernel_width, stride_y, stride_x, dilation_y, dilation_x, top, left;
  int32_t careful, kind, zero, low, high;
  const int8_t *weights, *zeros; /* zeros: what all channels of a pixel outside are */
  const int32_t *bias, *constants;
  window_code *neon_code, *dot_code; /* for windows of 3x3, or 0 */
  const int8_t *neon_blocks, *dot_blocks;
} neon_depthwise_layer;
typedef struct {
  const neon_depthwise_layer *layer;
  const int8_t *in;
  int8_t *out;
  int32_t parts, way;
} neon_depthwise;

#if defined(__aarch64__)
static inline int32x4_t neon_scaled(int32x4_t sums, const neon_depthwise_layer *layer, int32_t c) {
  const int32_t *const constants = layer->constants + 2 * c;
  if (layer->kind == 3) {
    const float32x4_t factor = vreinterpretq_f32_s32(vld1q_s32(constants));
    return vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(sums), factor));
  }
  sums = vqrdmulhq_s32(sums, vld1q_s32(constants));
  if (layer->kind == 1) sums = vsraq_n_s32(sums, sums, 31);
  return vrshlq_s32(sums, vld1q_s32(constants + 4));
}
static inline int8x8_t neon_bytes(int32x4_t low, int32x4_t high, const neon_depthwise_layer *layer,
                                  int32_t c) {
  const int16x8_t both = vcombine_s16(vqmovn_s32(neon_scaled(low, layer, c)),
                                      vqmovn_s32(neon_scaled(high, layer, c + 4)));
  return vqmovn_s16(vqaddq_s16(both, vdupq_n_s16((int16_t)layer->zero)));
}
static void neon_sixteen(const neon_depthwise_layer *layer, const int8_t *const *taps,
                         const int8_t *weights, int32_t count, int32_t c, int8_t *out) {
  const int32_t channels = layer->channels;
  int32x4_t sums[4];
  for (int32_t i = 0; i < 4; ++i) sums[i] = vld1q_s32(layer->bias + c + 4 * i);
  weights += c;
  const int32_t step = layer->careful ? 1 : 2;
  for (int32_t t = 0; t < count; t += step, weights += step * channels) {
    const int8x16_t a = vld1q_s8(taps[t] + c), v = vld1q_s8(weights);
    int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(v)), high = vmull_high_s8(a, v);
    if (step == 2 && t + 1 < count) {
      const int8x16_t b = vld1q_s8(taps[t + 1] + c), w = vld1q_s8(weights + channels);
      low = vmlal_s8(low, vget_low_s8(b), vget_low_s8(w));
      high = vmlal_high_s8(high, b, w);
    }
    sums[0] = vaddw_s16(sums[0], vget_low_s16(low));
    sums[1] = vaddw_high_s16(sums[1], low);
    sums[2] = vaddw_s16(sums[2], vget_low_s16(high));
    sums[3] = vaddw_high_s16(sums[3], high);
  }
  const int8x16_t bytes = vcombine_s8(neon_bytes(sums[0], sums[1], layer, c),
                                      neon_bytes(sums[2], sums[3], layer, c + 8));
  const int8x16_t least = vdupq_n_s8((int8_t)layer->low), most = vdupq_n_s8((int8_t)layer->high);
  vst1q_s8(out + c, vminq_s8(vmaxq_s8(bytes, least), most));
}
#endif

static void depthwise_pixel(const neon_depthwise *all, const int8_t *const *taps, int32_t count,
                            int8_t *out) {
  const neon_depthwise_layer *const layer = all->layer;
  int32_t c = 0;
#if defined(__aarch64__)
  const int32_t last = (layer->channels - 16) & ~3;
  if (all->way >= 0 && layer->channels >= 16)
    for (; c < layer->channels - 3; c += 16) {
      /* The last sixteen may be some of those before once more. */
      if (c > last) c = last;
      neon_sixteen(layer, taps, layer->weights, count, c, out);
    }
#endif
  for (; c < layer->channels; ++c) {
    int32_t sum = layer->bias[c];
    for (int32_t t = 0; t < count; ++t) sum += taps[t][c] * layer->weights[t * layer->channels + c];
    out[c] = neon_byte(sum, layer->constants, c, layer->kind, layer->zero, layer->low, layer->high);
  }
}

static void depthwise_row(const neon_depthwise *all, int32_t y) {
  const neon_depthwise_layer *const layer = all->layer;
  const int8_t *taps[MOST_TAPS];
  const int32_t channels = layer->channels, width = layer->kernel_width;
  const int32_t count = layer->kernel_height * width;
  int8_t *out = all->out + (int64_t)y * layer->out_width * channels;
  for (int32_t x = 0; x < layer->out_width; ++x, out += channels) {
    int32_t t = 0, row = y * layer->stride_y - layer->top;
    for (int32_t ky = 0; ky < layer->kernel_height; ++ky, row += layer->dilation_y) {
      int32_t column = x * layer->stride_x - layer->left;
      const int8_t *const line = all->in + (int64_t)row * layer->in_width * channels;
      const int32_t inside = row >= 0 && row < layer->in_height;
      for (int32_t kx = 0; kx < width; ++kx, column += layer->dilation_x) {
        const int32_t seen = inside && column >= 0 && column < layer->in_width;
        taps[t++] = seen ? line + (int64_t)column * channels : layer->zeros;
      }
    }
    depthwise_pixel(all, taps, count, out);
  }
}

/* The rows y and, of `count` of two, y + 1. */
static void depthwise_window(const neon_depthwise *all, int32_t y, int32_t count) {
  const neon_depthwise_layer *const layer = all->layer;
  const int64_t line = (int64_t)layer->out_width * layer->channels;
  int8_t *const out = all->out + y * line;
  const int32_t reach = (layer->out_width - 1) * layer->stride_x + 3 - layer->left;
  const int32_t beyond = reach > layer->in_width ? reach - layer->in_width : 0;
  const int32_t ends = beyond ? (beyond - 1) / layer->stride_x + 1 : 0;
  const int32_t dot = all->way >= 1;
  window_rows rows = {.step = layer->channels,
                      .inner = layer->out_width - ends,
                      .left = layer->left,
                      .right = ends,
                      .weights = dot ? layer->dot_blocks : layer->neon_blocks,
                      .blocks = layer->channels / WINDOW_CHANNELS,
                      .columns = reach - beyond,
                      .zeros = layer->zeros,
                      .width = layer->out_width};
  for (int32_t i = 0; i < 4; ++i) {
    const int32_t row = y * layer->stride_y - layer->top + i;
    const int32_t seen = row >= 0 && row < layer->in_height && i < 2 + count;
    rows.rows[i] = seen ? all->in + (int64_t)row * layer->in_width * layer->channels : layer->zeros;
    rows.steps[i] = seen ? layer->channels : 0;
  }
  rows.out[0] = out;
  rows.out[1] = count == 2 ? out + line : out;
  (dot ? layer->dot_code : layer->neon_code)(&rows);
}

static void depthwise_part(const void *argument, int32_t part) {
  const neon_depthwise *const all = argument;
  const neon_depthwise_layer *const layer = all->layer;
  const int32_t end = part_begin(layer->out_height, 2, all->parts, part + 1);
  int32_t y = part_begin(layer->out_height, 2, all->parts, part);
  if (all->way >= 0 && layer->neon_code) {
    const int32_t two = all->way >= 1 && layer->stride_y == 1 ? 2 : 1;
    for (; y < end; y += two) depthwise_window(all, y, end - y < two ? 1 : two);
    return;
  }
  for (; y < end; ++y) depthwise_row(all, y);
}

static void run_neon_depthwise(const environment_t *environment,
                               const neon_depthwise_layer *layer, const int8_t *in, int8_t *out) {
  neon_depthwise all = {.layer = layer, .in = in, .out = out, .parts = 1};
  all.way = way_of(environment);
  const int64_t work = (int64_t)layer->out_height * layer->out_width * layer->channels *
                       layer->kernel_height * layer->kernel_width;
  all.parts = parts_of(environment, work, layer->out_height);
  in_parts(environment, all.parts, depthwise_part, &all);
}
