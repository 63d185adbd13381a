/* Convolutions and dense layers as products of rows of bytes and tiles of sixteen channels. */
typedef void product_tile(const int8_t *rows, int64_t stride, const int8_t *weights,
                          int64_t blocks, int8_t *out, int64_t out_stride,
                          const int32_t *constants, int64_t count);
typedef struct {
  patch_layer patch;
  int32_t pixels, channels, blocks, strip, gathered, kind, zero, low, high;
  const int8_t *weights;
  const int32_t *constants;
  product_tile *tiles[3][2]; /* by what the core has; whole tiles, and the last */
} neon_layer;
typedef struct {
  const neon_layer *layer;
  const int8_t *in;
  int8_t *out, *scratch;
  int32_t parts, by_channels, way;
} neon_products;

enum { TILE = 16, TILE_WORDS = 9 * TILE };

static void portable_tile(const neon_layer *layer, const int8_t *rows, int64_t stride,
                          int32_t tile, int8_t *out, int64_t count) {
  const int32_t *const constants = layer->constants + tile * TILE_WORDS;
  const int8_t *const weights = layer->weights + (int64_t)tile * layer->blocks * 8 * TILE;
  const int32_t left = layer->channels - tile * TILE, used = left < TILE ? left : TILE;
  for (int64_t row = 0; row < count; ++row, rows += stride, out += layer->channels)
    for (int32_t c = 0; c < used; ++c) {
      int32_t sum = constants[c];
      for (int32_t block = 0; block < layer->blocks; ++block)
        for (int32_t i = 0; i < 8; ++i)
          sum += rows[8 * block + i] * weights[(block * TILE + c) * 8 + i];
      out[c] = neon_byte(sum, constants + TILE, c, layer->kind, layer->zero, layer->low,
                         layer->high);
    }
}

static void products_of_rows(const neon_products *all, const int8_t *rows, int64_t stride,
                             int8_t *out, int32_t count, int32_t first, int32_t end) {
  const neon_layer *const layer = all->layer;
  const int32_t last = layer->channels / TILE;
  for (int32_t tile = first; tile < end; ++tile) {
    product_tile *const code = all->way < 0 ? 0 : layer->tiles[all->way][tile == last];
    if (code)
      code(rows, stride, layer->weights + (int64_t)tile * layer->blocks * 8 * TILE, layer->blocks,
           out + tile * TILE, layer->channels, layer->constants + tile * TILE_WORDS, count);
    else
      portable_tile(layer, rows, stride, tile, out + tile * TILE, count);
  }
}

static void products_part(const void *argument, int32_t part) {
  const neon_products *const all = argument;
  const neon_layer *const layer = all->layer;
  const int32_t tiles = (layer->channels + TILE - 1) / TILE, depth = layer->blocks * 8;
  int32_t first = 0, end = tiles, pixel = 0, pixels = layer->pixels;
  if (all->by_channels) {
    first = part_begin(tiles, 1, all->parts, part);
    end = part_begin(tiles, 1, all->parts, part + 1);
  } else {
    pixel = part_begin(layer->pixels, layer->strip, all->parts, part);
    pixels = part_begin(layer->pixels, layer->strip, all->parts, part + 1);
  }
  int8_t *const patches = all->scratch + (int64_t)part * layer->strip * depth;
  for (; pixel < pixels; pixel += layer->strip) {
    const int32_t left = pixels - pixel, count = left < layer->strip ? left : layer->strip;
    int8_t *const out = all->out + (int64_t)pixel * layer->channels;
    if (!layer->gathered) {
      products_of_rows(all, all->in + (int64_t)pixel * depth, depth, out, count, first, end);
      continue;
    }
    /* Bytes beyond a patch may be anything: their weights are zero. */
    for (int32_t i = 0; i < count; ++i)
      gather_bytes(&layer->patch, all->in, pixel + i, patches + (int64_t)i * depth);
    products_of_rows(all, patches, depth, out, count, first, end);
  }
}

static void run_neon_products(const environment_t *environment, const neon_layer *layer,
                              const int8_t *in, int8_t *out, int8_t *scratch) {
  neon_products all = {.layer = layer, .in = in, .out = out, .scratch = scratch, .parts = 1};
  all.way = way_of(environment);
  const int32_t strips = (layer->pixels + layer->strip - 1) / layer->strip;
  const int32_t tiles = (layer->channels + TILE - 1) / TILE;
  all.by_channels = strips < environment->threads;
  const int64_t work = (int64_t)layer->pixels * layer->channels * layer->blocks * 8;
  int32_t most = all.by_channels ? tiles : strips;
  if (layer->gathered && most > MOST_THREADS) most = MOST_THREADS;
  all.parts = parts_of(environment, work, most);
  in_parts(environment, all.parts, products_part, &all);
}
