/* What holds for all models of a process: the device's memory, pauses, and how long the device is kept
 * from others.  adrenoc.h includes it. */
#ifndef ADRENOC_PROCESS_H_
#define ADRENOC_PROCESS_H_

#include "adrenoc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most bytes of the device's memory that the models of the process hold together between runs; 0,
 * as it is at first, for no limit.  What is beyond that is given up by the models that were used
 * longest ago and do not compute: what lies between their launches first, then, if that is not enough,
 * their constants.  The host's memory keeps states and a decoder's context meanwhile, and the next call
 * moves all to the device again, from the bundle's files, which have to stay as they are.  The model
 * that was used last keeps all that it needs, even if it is larger than the budget.  A model that was
 * loaded by adrenoc_load_memory keeps its constants, and adrenoc_notes says so.  Built kernels are not
 * counted, nor what an app binds. */
ADRENOC_API adrenoc_status adrenoc_set_memory_budget(uint64_t bytes);

typedef enum adrenoc_trim_part {
  ADRENOC_TRIM_UNUSED = 0,   /* what waits to be used again, and nobody uses */
  ADRENOC_TRIM_BETWEEN = 1,  /* and what lies between the launches of all models */
  ADRENOC_TRIM_CONSTANTS = 2 /* and their constants, as beyond a budget */
} adrenoc_trim_part;

/* Give so much of the device's memory back, as in onTrimMemory: an adrenoc_trim_part.  From any thread:
 * it waits for no run; a model that computes gives up its part when the run has ended. */
ADRENOC_API adrenoc_status adrenoc_trim_memory(uint32_t part);

/* What the models of the process hold on OpenCL devices now.  Set `struct_bytes` to
 * sizeof(adrenoc_memory) first. */
typedef struct adrenoc_memory {
  uint32_t struct_bytes;
  uint32_t models;       /* that are loaded, those on the CPU apart */
  uint32_t evicted;      /* of these: whose constants are not on the device */
  uint64_t budget_bytes; /* 0 for none */
  uint64_t used_bytes;
  uint64_t pooled_bytes; /* that wait to be used again */
  uint64_t evictions;    /* since the process began: constants that were given up */
  uint64_t returns;      /* and moved to the device again */
  double return_ms;      /* which took so long, all together */
} adrenoc_memory;

ADRENOC_API adrenoc_status adrenoc_get_memory(adrenoc_memory* memory);

/* No model computes any more, as while nobody sees the app: calls that compute return
 * ADRENOC_NOT_READY at once, until adrenoc_resume.  What goes on ends, tokens after the one that is
 * under way (with ADRENOC_NOT_READY; the context stays, and an empty prompt goes on).  Waits for that
 * at most `timeout_ms` milliseconds, without limit if that is negative; ADRENOC_NOT_READY if something
 * still goes on then, after which nothing begins.  Not from a listener of tokens. */
ADRENOC_API adrenoc_status adrenoc_pause(int64_t timeout_ms);
ADRENOC_API adrenoc_status adrenoc_resume(void);

/* The most milliseconds of the device that a run of any model takes at once, so that what draws the
 * screen gets its turn: the launches of later runs are given in pieces, each when the one before has
 * ended, by times that are measured as they run.  0, as it is at first, for no limit.  The first run
 * of a model is not cut, and no single kernel is: adrenoc_get_launching tells. */
ADRENOC_API adrenoc_status adrenoc_set_submission_limit(double ms);

#ifdef __cplusplus
}
#endif

#endif /* ADRENOC_PROCESS_H_ */
