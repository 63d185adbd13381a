/* Sums of two tensors: each number times a factor of its tensor, and one shift. */
typedef struct {
  int32_t first, second, offset, shift, low, high;
} line_layer;

static void add_lines(const line_layer *layer, const int8_t *first, const int8_t *second,
                      int8_t *out, int32_t count) {
  const int32_t a = layer->first, b = layer->second, offset = layer->offset;
  const int32_t shift = layer->shift, low = layer->low, high = layer->high;
  for (const int8_t *const end = first + count; first != end;) {
    const int32_t sum = *first++ * a + *second++ * b + offset;
    *out++ = (int8_t)clamp_int8(sum >> shift, low, high);
  }
}
