/* Average or maximum of a window; what lies outside of the image does not count. */
typedef struct {
  int32_t in_height, in_width, channels, out_height, out_width;
  int32_t kernel_height, kernel_width, stride_y, stride_x, top, left, low, high;
} pool_layer;

static void pool_window(const pool_layer *layer, int32_t y, int32_t x, int32_t *box) {
  const int32_t row = y * layer->stride_y - layer->top, column = x * layer->stride_x - layer->left;
  const int32_t bottom = row + layer->kernel_height, right = column + layer->kernel_width;
  box[0] = row < 0 ? 0 : row;
  box[1] = bottom > layer->in_height ? layer->in_height : bottom;
  box[2] = column < 0 ? 0 : column;
  box[3] = right > layer->in_width ? layer->in_width : right;
}
