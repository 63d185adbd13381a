/* Elements at other places: for each of four axes a table of offsets, -1 for what lies outside. */
typedef struct {
  int32_t extents[4], fill, run; /* run: elements of the last axis that lie side by side, or 0 */
  const int32_t *offsets[4];
} move_layer;
