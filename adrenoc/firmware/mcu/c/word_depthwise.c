/* Which columns of a depthwise window lie inside of the image. */
static void word_columns(const word_layer *layer, int32_t x, int32_t *ends) {
  const int32_t column = x * layer->stride_x - layer->left, step = layer->dilation_x;
  const int32_t room = layer->in_width - column;
  const int32_t last = room <= 0 ? 0 : (room + step - 1) / step;
  ends[0] = column < 0 ? (-column + step - 1) / step : 0;
  ends[1] = last < layer->kernel_width ? last : layer->kernel_width;
}
