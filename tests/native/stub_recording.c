/* The extensions of the counting OpenCL library that record launches: see stub_opencl.c. */
#include <stdio.h>
#include <unistd.h>

#include "stub_objects.h"

/* --- cl_khr_command_buffer -------------------------------------------------------------------- */

static void* clCreateCommandBufferKHR(cl_uint count, void* const* queues,
                                      const uint64_t* properties, cl_int* code) {
  ENTER;
  const queue* on = queues[0];
  const int shared = properties != NULL && properties[0] == 0x1293 && (properties[1] & 1);
  if (count != 1 || (shared && on->on->buffer_capabilities == 0)) {
    if (code != NULL) *code = INVALID_VALUE;
    return NULL;
  }
  list* made = failed ? NULL : calloc(1, sizeof(list));
  if (made != NULL) made->shared = shared;
  MADE(made);
}
static cl_int clReleaseCommandBufferKHR(void* b) {
  CHECKED;
  stub_free_list(b);
  RELEASED(b);
}
static cl_int clFinalizeCommandBufferKHR(void* b) {
  CHECKED;
  ((list*)b)->finished = 1;
  return SUCCESS;
}
static cl_int clCommandNDRangeKernelKHR(void* b, void* q, const uint64_t* properties, void* k,
                                        cl_uint dimensions, const size_t* offset,
                                        const size_t* global, const size_t* local, cl_uint points,
                                        const cl_uint* waited, cl_uint* point, void** handle) {
  CHECKED;
  (void)q, (void)properties, (void)offset, (void)points, (void)waited, (void)handle;
  list* to = b;
  if (to->finished) return INVALID_OPERATION;
  launch made;
  stub_describe(&made, k, dimensions, global, local);
  stub_append(to, &made);
  if (point != NULL) *point = (cl_uint)to->count;
  return SUCCESS;
}
static cl_int clEnqueueCommandBufferKHR(cl_uint count, void* const* queues, void* b, cl_uint events,
                                        void* const* waited, void** done) {
  CHECKED;
  (void)count, (void)queues, (void)events, (void)waited;
  list* of = b;
  if (!of->finished || (of->pending && !of->shared)) return INVALID_OPERATION;
  stub_compute_list(of);
  stub_begin(of);
  if (stub_slow_us) usleep(stub_slow_us);
  if (done != NULL) *done = stub_new_event(of);
  return SUCCESS;
}

/* --- cl_qcom_recordable_queues: signatures as in the open sources of MNN and TVM -------------- */

static void* clNewRecordingQCOM(void* q, cl_int* code) {
  ENTER;
  queue* on = q;
  if (!(on->properties & RECORDABLE_QUEUE) || on->recording != NULL) {
    if (code != NULL) *code = INVALID_OPERATION;
    return NULL;
  }
  list* made = failed ? NULL : calloc(1, sizeof(list));
  if (made != NULL) made->recorder = on;
  on->recording = made;
  MADE(made);
}
static cl_int clEndRecordingQCOM(void* r) {
  CHECKED;
  list* of = r;
  of->finished = 1;
  of->recorder->recording = NULL;
  return SUCCESS;
}
static cl_int clReleaseRecordingQCOM(void* r) {
  CHECKED;
  stub_free_list(r);
  RELEASED(r);
}
static cl_int clEnqueueRecordingQCOM(void* q, void* r, size_t arguments, const void* a,
                                     size_t offsets, const void* b, size_t globals, const void* c,
                                     size_t locals, const void* d, cl_uint events,
                                     void* const* waited, void** done) {
  CHECKED;
  (void)a, (void)b, (void)c, (void)d, (void)events, (void)waited, (void)done;
  const list* of = r;
  if (!of->finished || (((queue*)q)->properties & RECORDABLE_QUEUE)) return INVALID_OPERATION;
  if (arguments || offsets || globals || locals) return INVALID_VALUE;
  stub_compute_list(of);
  if (stub_slow_us) usleep(stub_slow_us);
  return SUCCESS;
}

void* clGetExtensionFunctionAddressForPlatform(void* platform, const char* name) {
  ENTER;
  (void)platform;
  /* A failing look-up of one function is asked for by its own name with a ? behind. */
  char asked[128];
  snprintf(asked, sizeof(asked), "%s?", name);
  if (failed || stub_find(asked)->code) return NULL;
#define KNOWN(function) \
  if (strcmp(name, #function) == 0) return (void*)(uintptr_t)&function
  KNOWN(clCreateCommandBufferKHR);
  KNOWN(clReleaseCommandBufferKHR);
  KNOWN(clFinalizeCommandBufferKHR);
  KNOWN(clCommandNDRangeKernelKHR);
  KNOWN(clEnqueueCommandBufferKHR);
  KNOWN(clNewRecordingQCOM);
  KNOWN(clEndRecordingQCOM);
  KNOWN(clReleaseRecordingQCOM);
  KNOWN(clEnqueueRecordingQCOM);
  return NULL;
}
