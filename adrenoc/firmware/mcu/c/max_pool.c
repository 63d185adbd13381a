static void max_pool(const pool_layer *layer, const int8_t *in, int8_t *out) {
  int32_t box[4];
  for (int32_t y = 0; y < layer->out_height; ++y)
    for (int32_t x = 0; x < layer->out_width; ++x) {
      pool_window(layer, y, x, box);
      for (int32_t c = 0; c < layer->channels; ++c) {
        int32_t most = -128;
        for (int32_t row = box[0]; row < box[1]; ++row) {
          const int8_t *pixel = in + (row * layer->in_width + box[2]) * layer->channels + c;
          for (int32_t column = box[2]; column < box[3]; ++column, pixel += layer->channels)
            if (*pixel > most) most = *pixel;
        }
        *out++ = (int8_t)clamp_int8(most, layer->low, layer->high);
      }
    }
}
