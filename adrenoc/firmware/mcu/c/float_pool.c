/* The mean of a window in float32, in the order of rows: each operation rounds on its own. */
typedef struct {
  int32_t in_height, in_width, channels, out_height, out_width, kernel_height, kernel_width;
  int32_t stride_y, stride_x, top, left, scale_in, scale_out, zero_in, zero_out, offset, whole;
} float_pool_layer;

static void float_pool(const float_pool_layer *layer, const int8_t *in, int8_t *out) {
  const int32_t channels = layer->channels, width = layer->in_width;
  const float scale = float_of(layer->scale_in), step = float_of(layer->scale_out);
  for (int32_t y = 0; y < layer->out_height; ++y)
    for (int32_t x = 0; x < layer->out_width; ++x) {
      int32_t top = y * layer->stride_y - layer->top, left = x * layer->stride_x - layer->left;
      int32_t bottom = top + layer->kernel_height, right = left + layer->kernel_width;
      if (top < 0) top = 0;
      if (left < 0) left = 0;
      if (bottom > layer->in_height) bottom = layer->in_height;
      if (right > width) right = width;
      const int32_t seen = (bottom - top) * (right - left);
      const float count =
          (float)(layer->whole ? layer->kernel_height * layer->kernel_width : seen);
      for (int32_t c = 0; c < channels; ++c) {
        float sum = 0.0f;
        for (int32_t row = top; row < bottom; ++row)
          for (int32_t column = left; column < right; ++column) {
            const float real =
                scale * (float)(in[(row * width + column) * channels + c] - layer->zero_in);
            sum += real;
          }
        const float mean = sum / count;
        const float quanta = mean / step;
        const int32_t found = nearest(quanta + (float)layer->zero_out) - layer->offset;
        *out++ = (int8_t)clamp_int8(found, -128, 127);
      }
    }
}
