/* A pool: each call of `each` wakes all threads, which take parts until none is left. */
#include "threads.h"

#include <pthread.h>
#include <stdlib.h>
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

typedef struct {
  model_environment environment;
  pthread_mutex_t lock;
  pthread_cond_t begun, ended;
  void (*task)(const void *, int32_t);
  const void *argument;
  int32_t parts, next, left, closing;
  int32_t count;
  pthread_t threads[];
} pool_t;

uint32_t model_features(void) {
  uint32_t found = 0;
#if defined(__aarch64__)
  found = MODEL_HAS_NEON;
#if defined(__linux__)
  if (getauxval(AT_HWCAP) & (1ul << 20)) found |= MODEL_HAS_DOT;
  if (getauxval(AT_HWCAP2) & (1ul << 13)) found |= MODEL_HAS_I8MM;
#endif
#endif
  return found;
}

/* With the lock held: parts one after the other, while there are any. */
static void take_parts(pool_t *pool) {
  while (pool->next < pool->parts) {
    const int32_t part = pool->next++;
    pthread_mutex_unlock(&pool->lock);
    pool->task(pool->argument, part);
    pthread_mutex_lock(&pool->lock);
    if (--pool->left == 0) pthread_cond_broadcast(&pool->ended);
  }
}

static void *work(void *argument) {
  pool_t *const pool = argument;
  pthread_mutex_lock(&pool->lock);
  while (!pool->closing) {
    take_parts(pool);
    if (!pool->closing) pthread_cond_wait(&pool->begun, &pool->lock);
  }
  pthread_mutex_unlock(&pool->lock);
  return 0;
}

static void each(void *argument, int32_t parts, void (*task)(const void *, int32_t),
                 const void *of_task) {
  pool_t *const pool = argument;
  pthread_mutex_lock(&pool->lock);
  pool->task = task;
  pool->argument = of_task;
  pool->next = 0;
  pool->parts = pool->left = parts;
  pthread_cond_broadcast(&pool->begun);
  take_parts(pool);
  while (pool->left) pthread_cond_wait(&pool->ended, &pool->lock);
  pthread_mutex_unlock(&pool->lock);
}

model_environment *model_open_environment(int32_t threads) {
  const int32_t more = threads > 1 ? threads - 1 : 0;
  pool_t *const pool = calloc(1, sizeof *pool + (size_t)more * sizeof pool->threads[0]);
  if (!pool) return 0;
  pool->environment.features = model_features();
  pool->environment.pool = pool;
  pthread_mutex_init(&pool->lock, 0);
  pthread_cond_init(&pool->begun, 0);
  pthread_cond_init(&pool->ended, 0);
  while (pool->count < more &&
         pthread_create(&pool->threads[pool->count], 0, work, pool) == 0)
    ++pool->count;
  /* Fewer threads than asked for are fewer threads: the numbers are the same. */
  pool->environment.threads = pool->count + 1;
  pool->environment.each = pool->count ? each : 0;
  return &pool->environment;
}

void model_close_environment(model_environment *environment) {
  if (!environment) return;
  pool_t *const pool = environment->pool;
  pthread_mutex_lock(&pool->lock);
  pool->closing = 1;
  pthread_cond_broadcast(&pool->begun);
  pthread_mutex_unlock(&pool->lock);
  for (int32_t i = 0; i < pool->count; ++i) pthread_join(pool->threads[i], 0);
  pthread_cond_destroy(&pool->ended);
  pthread_cond_destroy(&pool->begun);
  pthread_mutex_destroy(&pool->lock);
  free(pool);
}
