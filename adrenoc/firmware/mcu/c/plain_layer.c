/* Filters in plain C.  `offset` is null where products are rounded twice. */
typedef struct {
  int32_t in_height, in_width, in_channels, out_height, out_width, out_channels;
  int32_t kernel_height, kernel_width, stride_y, stride_x, dilation_y, dilation_x, top, left;
  int32_t zero_in, zero_out, low, high;
  single_function *single; /* where multipliers are bits of float32 */
  const int8_t *weights;
  const int32_t *bias, *multiplier;
  const int64_t *offset;
  const int8_t *shift;
} plain_layer;

static int8_t plain_store(const plain_layer *layer, int32_t sum, int32_t channel) {
  const int32_t multiplier = layer->multiplier[channel], shift = layer->shift[channel];
  const int32_t value =
      layer->single ? layer->single(sum, multiplier, layer->zero_out)
      : layer->offset ? requantise_once(sum, multiplier, layer->offset[channel], shift)
                    : requantise_twice(sum, multiplier, shift) + layer->zero_out;
  return (int8_t)clamp_int8(value, layer->low, layer->high);
}
