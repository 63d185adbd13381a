/* An LSTM of int8 with gates and cells of int16.  `state` has the cells, then the last result. */
typedef void norm_function(const int16_t *weights, const int32_t *bias, const int32_t *factor,
                           int32_t guard, int16_t *numbers, int32_t count);
typedef struct {
  const int8_t *input, *recurrent;
  const int32_t *input_bias, *recurrent_bias;
  int32_t input_factor[2], recurrent_factor[2];
  norm_function *normalise; /* null where sums are taken as they are */
  const int16_t *norm;
  const int32_t *norm_bias;
  int32_t norm_factor[2], guard;
} lstm_gate;
typedef struct {
  int32_t rows, depth, cells, cell_bits, clip, hidden[2], zero_out;
  lstm_gate gates[4]; /* input (or none), forget, cell, output */
} lstm_layer;

static inline int32_t lstm_held(int32_t value) { return clamp_int8(value, -32768, 32767); }
static void lstm_sums(const lstm_layer *layer, const lstm_gate *gate, const int8_t *row,
                      const int8_t *last, int16_t *sums) {
  const int8_t *input = gate->input, *recurrent = gate->recurrent;
  for (int32_t c = 0; c < layer->cells; ++c, input += layer->depth, recurrent += layer->cells) {
    const int32_t one = gate->input_bias[c] + byte_dot(input, row, layer->depth);
    const int32_t two = gate->recurrent_bias[c] + byte_dot(recurrent, last, layer->cells);
    const int32_t first =
        lstm_held(requantise_twice(one, gate->input_factor[0], gate->input_factor[1]));
    const int32_t second =
        requantise_twice(two, gate->recurrent_factor[0], gate->recurrent_factor[1]);
    /* So that their sum fits: what is beyond makes no difference. */
    sums[c] = (int16_t)lstm_held(first + clamp_int8(second, -65536, 65536));
  }
}
static void lstm(const lstm_layer *layer, const int8_t *in, int8_t *out, int16_t *state,
                 int16_t *scratch) {
  const int32_t cells = layer->cells;
  int8_t *const last = (int8_t *)(state + cells);
  for (int32_t row = 0; row < layer->rows; ++row, in += layer->depth) {
    for (int32_t g = 0; g < 4; ++g) {
      const lstm_gate *const gate = layer->gates + g;
      if (!gate->input) continue;
      lstm_sums(layer, gate, in, last, scratch + g * cells);
      if (gate->normalise)
        gate->normalise(gate->norm, gate->norm_bias, gate->norm_factor, gate->guard,
                        scratch + g * cells, cells);
    }
    for (int32_t c = 0; c < cells; ++c) {
      const int32_t forget = short_logistic(scratch[cells + c]);
      const int32_t fresh = short_tanh(scratch[2 * cells + c], 3);
      const int32_t enter = layer->gates[0].input ? short_logistic(scratch[c]) : 32767 - forget;
      const int32_t taken = lstm_held(shift_right(enter * fresh, 30 - layer->cell_bits));
      int32_t cell = lstm_held(lstm_held(shift_right(forget * state[c], 15)) + taken);
      if (layer->clip) cell = clamp_int8(cell, -layer->clip, layer->clip);
      state[c] = (int16_t)cell;
      const int32_t leave = short_logistic(scratch[3 * cells + c]);
      const int32_t shown = leave * short_tanh(cell, 15 - layer->cell_bits);
      const int32_t value = requantise_twice(shown, layer->hidden[0], layer->hidden[1]);
      last[c] = (int8_t)clamp_int8(value + layer->zero_out, -128, 127);
      *out++ = last[c];
    }
  }
}
