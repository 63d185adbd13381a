/* What the model runs on: what its core can do, and who runs parts of a layer side by side.  Each
 * task is called once for each part, by any thread, before `each` returns; without it, in turn. */
typedef model_environment environment_t;
static inline void in_parts(const environment_t *environment, int32_t parts,
                            void (*task)(const void *, int32_t), const void *argument) {
  if (parts > 1 && environment->each) {
    environment->each(environment->pool, parts, task, argument);
    return;
  }
  for (int32_t part = 0; part < parts; ++part) task(argument, part);
}
/* Where a part of `count` things begins, in whole groups of `step`. */
static inline int32_t part_begin(int32_t count, int32_t step, int32_t parts, int32_t part) {
  const int64_t groups = (count + step - 1) / step;
  const int64_t begin = groups * part / parts * step;
  return begin < count ? (int32_t)begin : count;
}
/* How many parts pay, of work of so many multiply-adds. */
static inline int32_t parts_of(const environment_t *environment, int64_t work, int32_t most) {
  int64_t parts = work / 65536;
  if (parts > environment->threads) parts = environment->threads;
  if (parts > most) parts = most;
  return environment->each && parts > 1 ? (int32_t)parts : 1;
}
enum { MOST_THREADS = 8 }; /* that have working memory of their own */
/* The fastest code that the core has: SMMLA, SDOT, SMLAL; -1 for plain C. */
static inline int32_t way_of(const environment_t *environment) {
#if defined(__aarch64__)
  const uint32_t has = environment->features;
  return has & MODEL_HAS_I8MM ? 2 : has & MODEL_HAS_DOT ? 1 : has & MODEL_HAS_NEON ? 0 : -1;
#else
  (void)environment;
  return -1;
#endif
}
#if defined(__aarch64__)
#define ARM_CODE(name) name
#else
#define ARM_CODE(name) 0
#endif
