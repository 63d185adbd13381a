/* Depthwise convolutions of any window and channel multiplier, in plain C. */
static void plain_depthwise(const plain_layer *layer, const int8_t *in, int8_t *out) {
  const int32_t depth = layer->in_channels, channels = layer->out_channels;
  const int32_t many = channels / depth;
  for (int32_t y = 0; y < layer->out_height; ++y)
    for (int32_t x = 0; x < layer->out_width; ++x)
      for (int32_t c = 0; c < channels; ++c) {
        int32_t sum = layer->bias[c];
        for (int32_t ky = 0; ky < layer->kernel_height; ++ky) {
          const int32_t row = y * layer->stride_y + ky * layer->dilation_y - layer->top;
          if (row < 0 || row >= layer->in_height) continue;
          for (int32_t kx = 0; kx < layer->kernel_width; ++kx) {
            const int32_t column = x * layer->stride_x + kx * layer->dilation_x - layer->left;
            if (column < 0 || column >= layer->in_width) continue;
            sum += (in[(row * layer->in_width + column) * depth + c / many] - layer->zero_in) *
                   layer->weights[(ky * layer->kernel_width + kx) * channels + c];
          }
        }
        *out++ = plain_store(layer, sum, c);
      }
}
