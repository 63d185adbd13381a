static void average_pool(const pool_layer *layer, const int8_t *in, int8_t *out) {
  int32_t box[4];
  for (int32_t y = 0; y < layer->out_height; ++y)
    for (int32_t x = 0; x < layer->out_width; ++x) {
      pool_window(layer, y, x, box);
      const int32_t count = (box[1] - box[0]) * (box[3] - box[2]);
      for (int32_t c = 0; c < layer->channels; ++c) {
        int32_t sum = 0;
        for (int32_t row = box[0]; row < box[1]; ++row) {
          const int8_t *pixel = in + (row * layer->in_width + box[2]) * layer->channels + c;
          for (int32_t column = box[2]; column < box[3]; ++column, pixel += layer->channels)
            sum += *pixel;
        }
        sum = (sum > 0 ? sum + count / 2 : sum - count / 2) / count;
        *out++ = (int8_t)clamp_int8(sum, layer->low, layer->high);
      }
    }
}
