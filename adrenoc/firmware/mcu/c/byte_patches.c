/* What one output pixel sees, as bytes: a row of the window is one run, and where a part of it lies
 * outside of the image stands the zero point. */
static void gather_bytes(const patch_layer *layer, const int8_t *in, int32_t index, int8_t *to) {
  const int32_t depth = layer->depth, width = layer->in_width, kernel = layer->kernel_width;
  const int32_t step = layer->dilation_x, run = kernel * depth;
  const int32_t y = index / layer->out_width, x = index - y * layer->out_width;
  const int32_t left = x * layer->stride_x - layer->left;
  int32_t row = y * layer->stride_y - layer->top;
  if (step == 1 && left >= 0 && left + kernel <= width && row >= 0 &&
      row + (layer->kernel_height - 1) * layer->dilation_y < layer->in_height) {
    const int32_t down = layer->dilation_y * width * depth;
    const int8_t *from = in + (row * width + left) * depth;
    const int8_t *const end = to + layer->kernel_height * run;
    for (; to != end; to += run, from += down)
      copy_run(from, to, run);
    return;
  }
  /* Columns of the window before, and up to the end of, what lies inside. */
  int32_t first = left < 0 ? (step - 1 - left) / step : 0;
  int32_t last = width - left + step - 1 < 0 ? 0 : (width - left + step - 1) / step;
  if (first > kernel) first = kernel;
  if (last > kernel) last = kernel;
  if (last < first) last = first;
  for (int32_t ky = 0; ky < layer->kernel_height; ++ky, row += layer->dilation_y, to += run) {
    if (row < 0 || row >= layer->in_height) {
      fill_run(to, layer->zero, run);
      continue;
    }
    const int8_t *from = in + (row * width + left + first * step) * depth;
    if (first) fill_run(to, layer->zero, first * depth);
    if (last != kernel) fill_run(to + last * depth, layer->zero, (kernel - last) * depth);
    if (step == 1) {
      copy_run(from, to + first * depth, (last - first) * depth);
      continue;
    }
    for (int32_t kx = first; kx < last; ++kx, from += step * depth)
      copy_run(from, to + kx * depth, depth);
  }
}
