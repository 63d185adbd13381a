/* Runs a model once: runner THREADS FEATURES INPUT... OUTPUT...; files hold raw numbers.  FEATURES
 * is a mask over what the core has.  After each layer `model_layer_done` is called, which counts. */
#include <stdio.h>
#include <stdlib.h>

#include "threads.h"

void model_layer_done(int number);
__attribute__((noinline)) void model_layer_done(int number) { __asm__ volatile("" ::"r"(number)); }

static int transfer(const char *path, void *bytes, size_t count, const char *mode) {
  FILE *const file = fopen(path, mode);
  if (!file) return 1;
  const size_t done = mode[0] == 'r' ? fread(bytes, 1, count, file) : fwrite(bytes, 1, count, file);
  return fclose(file) != 0 || done != count;
}

int main(int argc, char **argv) {
  static const int64_t in_bytes[] = MODEL_INPUT_SIZES, out_bytes[] = MODEL_OUTPUT_SIZES;
  enum { INPUTS = sizeof in_bytes / 8, OUTPUTS = sizeof out_bytes / 8, GUARD = 64 };
  if (argc != 3 + INPUTS + OUTPUTS) return 2;
  const void *inputs[INPUTS];
  void *outputs[OUTPUTS];
  for (int i = 0; i < INPUTS; ++i) {
    void *const room = malloc((size_t)in_bytes[i]);
    if (!room || transfer(argv[3 + i], room, (size_t)in_bytes[i], "rb")) return 3;
    inputs[i] = room;
  }
  for (int i = 0; i < OUTPUTS; ++i)
    if (!(outputs[i] = malloc((size_t)out_bytes[i]))) return 3;
  uint8_t *const arena = aligned_alloc(64, (MODEL_ARENA_BYTES + GUARD + 63) / 64 * 64);
  model_environment *const environment = model_open_environment(atoi(argv[1]));
  if (!arena || !environment) return 3;
  environment->features &= (uint32_t)strtoul(argv[2], 0, 0);
  for (int i = 0; i < GUARD; ++i) arena[MODEL_ARENA_BYTES + i] = (uint8_t)(i ^ 0x5A);
  model_layer_done(-1);
  model_compute(inputs, outputs, arena, environment);
  for (int i = 0; i < GUARD; ++i)
    if (arena[MODEL_ARENA_BYTES + i] != (uint8_t)(i ^ 0x5A)) return 4;
  model_close_environment(environment);
  for (int i = 0; i < OUTPUTS; ++i)
    if (transfer(argv[3 + INPUTS + i], outputs[i], (size_t)out_bytes[i], "wb")) return 3;
  return 0;
}
