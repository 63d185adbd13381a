/* Convolutions of any window, in plain C. */
static void plain_convolution(const plain_layer *layer, const int8_t *in, int8_t *out) {
  const int32_t depth = layer->in_channels;
  for (int32_t y = 0; y < layer->out_height; ++y)
    for (int32_t x = 0; x < layer->out_width; ++x)
      for (int32_t c = 0; c < layer->out_channels; ++c) {
        const int8_t *taps =
            layer->weights + c * layer->kernel_height * layer->kernel_width * depth;
        int32_t sum = layer->bias[c];
        for (int32_t ky = 0; ky < layer->kernel_height; ++ky) {
          const int32_t row = y * layer->stride_y + ky * layer->dilation_y - layer->top;
          for (int32_t kx = 0; kx < layer->kernel_width; ++kx, taps += depth) {
            const int32_t column = x * layer->stride_x + kx * layer->dilation_x - layer->left;
            if (row < 0 || row >= layer->in_height || column < 0 || column >= layer->in_width)
              continue;
            const int8_t *pixel = in + (row * layer->in_width + column) * depth;
            for (int32_t i = 0; i < depth; ++i) sum += (pixel[i] - layer->zero_in) * taps[i];
          }
        }
        *out++ = plain_store(layer, sum, c);
      }
}
