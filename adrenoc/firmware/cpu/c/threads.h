/* Threads for a model, and what this core can do. */
#ifndef MODEL_THREADS_H
#define MODEL_THREADS_H
#include "model.h"
#ifdef __cplusplus
extern "C" {
#endif

/* What the core can do, as MODEL_HAS_*. */
uint32_t model_features(void);
/* An environment with so many threads, the caller's among them; NULL where memory ran out. */
model_environment *model_open_environment(int32_t threads);
void model_close_environment(model_environment *environment);

#ifdef __cplusplus
}
#endif
#endif
