/* Another size of an image: each number between four of the source's, with weights of 10 bits along
 * either axis.  Halves are rounded away from zero. */
typedef struct {
  int32_t in_width, channels, out_height, out_width;
  const int16_t *first_row, *second_row, *weight_row;
  const int16_t *first_column, *second_column, *weight_column;
} bilinear_layer;
