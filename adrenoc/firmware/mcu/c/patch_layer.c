/* What a window sees of an image. */
typedef struct {
  int32_t in_height, in_width, depth, kernel_height, kernel_width, stride_y, stride_x;
  int32_t dilation_y, dilation_x, top, left, out_width, zero;
} patch_layer;
