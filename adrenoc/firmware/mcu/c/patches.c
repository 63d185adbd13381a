/* What one output pixel sees, as words of two int16, `step` words from one to the next.  A row of
 * the window is one run of bytes; where a part of it lies outside of the image, the zero point. */
static void gather_patch(const patch_layer *layer, const int8_t *in, int32_t index, uint32_t *to,
                         int32_t step, int8_t *spare) {
  const int32_t depth = layer->depth, width = layer->in_width, kernel = layer->kernel_width;
  const int32_t y = index / layer->out_width, x = index - y * layer->out_width;
  const int32_t left = x * layer->stride_x - layer->left;
  int32_t row = y * layer->stride_y - layer->top;
  const int32_t whole = layer->dilation_x == 1 && left >= 0 && left + kernel <= width;
  for (int32_t ky = 0; ky < layer->kernel_height; ++ky, row += layer->dilation_y) {
    const int32_t inside = row >= 0 && row < layer->in_height;
    if (inside && whole) {
      to = widen_run(in + (row * width + left) * depth, kernel * depth, to, step);
      continue;
    }
    int8_t *fill = spare;
    for (int32_t kx = 0; kx < kernel; ++kx) {
      const int32_t column = left + kx * layer->dilation_x;
      const int32_t seen = inside && column >= 0 && column < width;
      const int8_t *from = in + (row * width + column) * depth;
      for (int32_t i = 0; i < depth; ++i) *fill++ = seen ? from[i] : (int8_t)layer->zero;
    }
    to = widen_run(spare, kernel * depth, to, step);
  }
}
