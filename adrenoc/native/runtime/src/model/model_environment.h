/* An int8 model as code for an application processor: what it is given, and what it says of itself.
 */
#ifndef MODEL_ENVIRONMENT_H
#define MODEL_ENVIRONMENT_H
#include <stdint.h>

/* What a core can do, beside its plain instructions: bits of `features`. */
#define MODEL_HAS_NEON 1u
#define MODEL_HAS_DOT 2u  /* SDOT */
#define MODEL_HAS_I8MM 4u /* SMMLA */

/* Who computes: `each`, if it is not NULL, calls task(argument, part) once for each part, on any of
 * `threads` threads, and comes back when all have ended. */
typedef struct model_environment {
  uint32_t features;
  int32_t threads;
  void* pool;
  void (*each)(void* pool, int32_t parts, void (*task)(const void* argument, int32_t part),
               const void* argument);
} model_environment;

enum { MODEL_FACTS_VERSION = 2 };
/* Floats are rounded to quanta with halves away from zero, or to even. */
enum { MODEL_INT8 = 0, MODEL_UINT8 = 1, MODEL_FLOAT32 = 2, MODEL_FLOAT32_EVEN = 3 };

/* An input or output: what the model file has it in.  The code has int8:
 * real = scale * (stored - zero), of uint8 each number less 128. */
typedef struct model_border {
  int32_t dtype;
  int32_t zero;
  float scale;
  int64_t elements;
} model_border;

/* A constant of the bundle that a library takes weights of. */
typedef struct model_param {
  const char* name;
  int64_t bytes;
} model_param;

/* What a library of a model exports as `adrenoc_cpu_model`: borders of inputs, then outputs.  Where
 * it has `params`, `borrow` has to be given them, in that order, before it computes; they are not
 * read later. */
typedef struct model_facts {
  int32_t version, inputs, outputs, params;
  int64_t arena_bytes;
  const model_border* borders;
  void (*compute)(const void* const* inputs, void* const* outputs, void* arena,
                  const model_environment* environment);
  const model_param* lenders;
  void (*borrow)(const void* const* params);
} model_facts;

#endif
