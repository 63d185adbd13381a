/* What the parts of the counting OpenCL library share: see stub_opencl.c. */
#ifndef STUB_OBJECTS_H_
#define STUB_OBJECTS_H_

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_bitfield;

enum {
  SUCCESS = 0,
  INVALID_VALUE = -30,
  INVALID_QUEUE_PROPERTIES = -35,
  INVALID_OPERATION = -59,
};
enum { MAX_ARGUMENTS = 24, RECORDABLE_QUEUE = 1 << 30, MAX_RECORDED = 4 };

/* --- counting and failing --------------------------------------------------------------------- */

typedef struct {
  const char* name;
  long calls;
  int code;
  long spared;
} stub_entry;

stub_entry* stub_find(const char* name);
/* The code that this call shall fail with. */
int stub_failure(stub_entry* of);
extern long stub_live_objects;
extern unsigned stub_slow_us;

/* Counts a call of the function it stands in; `failed` is the code that it shall fail with. */
#define ENTER                                            \
  static stub_entry* self = NULL;                        \
  if (self == NULL) self = stub_find(__func__);          \
  __atomic_fetch_add(&self->calls, 1, __ATOMIC_RELAXED); \
  const int failed = stub_failure(self);                 \
  (void)failed
#define CHECKED \
  ENTER;        \
  if (failed) return failed
#define MADE(pointer)                                            \
  do {                                                           \
    if (code != NULL) *code = failed;                            \
    if (failed) return NULL;                                     \
    __atomic_fetch_add(&stub_live_objects, 1, __ATOMIC_RELAXED); \
    return (pointer);                                            \
  } while (0)
#define RELEASED(pointer)                                        \
  do {                                                           \
    __atomic_fetch_sub(&stub_live_objects, 1, __ATOMIC_RELAXED); \
    free(pointer);                                               \
    return SUCCESS;                                              \
  } while (0)

/* --- objects ---------------------------------------------------------------------------------- */

typedef struct {
  const char* name;
  const char* extensions;
  cl_bitfield buffer_capabilities;
} device;
typedef struct {
  long number;
  size_t bytes;
} memory;
typedef struct {
  char name[128];
  size_t sizes[MAX_ARGUMENTS];
  uint64_t values[MAX_ARGUMENTS];
} kernel;
/* A kernel as the log shows it. */
typedef struct {
  char text[512];
} launch;
typedef struct list list;
typedef struct {
  device* on;
  cl_bitfield properties;
  list* recording;
} queue;
/* Recorded launches: a command buffer, or a recording of a queue. */
struct list {
  queue* recorder;
  launch* launches;
  int count, finished, shared, pending;
};
typedef struct {
  list* of;
} event;

void* stub_new_event(list* of);
/* How a kernel is shown, and that it is computed. */
void stub_describe(launch* out, const kernel* k, cl_uint dimensions, const size_t* global,
                   const size_t* local);
void stub_compute(const launch* what);
void stub_compute_list(const list* which);

void stub_append(list* to, const launch* what);
void stub_free_list(list* which);
/* A list is under way until the queue, or its event, has been waited for. */
void stub_begin(list* which);
void stub_all_done(void);

#endif
