/* An OpenCL library without a device behind it: every call returns at once and is counted, so what
 * is left of a run's time is the host's, and calls can be counted exactly.
 *
 * Its devices differ in what they can record (`devices` below; stub_recording.c).  A kernel is
 * "computed" by a line in a log (stub_objects.c): name, work sizes and arguments, memory by the
 * number of its object.  So a replay can be compared with plain launches.  Control, by symbols of
 * this library:
 *
 *   stub_calls(name)        calls of an entry point so far
 *   stub_fail(name, code)   from now on it fails with that code; 0: it works again
 *   stub_fail_after(name, code, calls)  the same once it was called so often
 *   stub_properties()       what the last context and the last queue were made with, as text
 *   stub_slow(microseconds) how long enqueueing a recording takes
 *   stub_log(on)            what was computed since the last call, a line a kernel, and whether
 *                           what follows is to be logged: that takes longer than all the rest
 *   stub_live()             objects that were made and not released
 */
#include <stdio.h>

#include "stub_objects.h"

static device devices[] = {
    {"stub plain", "", 0},
    {"stub buffers", "cl_khr_command_buffer", 1 << 2},
    {"stub exclusive buffers", "cl_khr_command_buffer", 0},
    {"stub recordable", "cl_qcom_recordable_queues", 0},
    {"stub both", "cl_khr_command_buffer cl_qcom_recordable_queues", 1 << 2},
    {"stub hints", "cl_qcom_perf_hint cl_qcom_priority_hint", 0},
    {"stub priorities", "cl_khr_priority_hints", 0},
    {"stub deaf to hints", "cl_qcom_perf_hint cl_qcom_priority_hint", 0},
    {"stub deaf to priorities", "cl_khr_priority_hints", 0},
};
enum { DEVICES = sizeof(devices) / sizeof(devices[0]) };

static cl_int give(const void* value, size_t bytes, size_t room, void* out, size_t* size) {
  if (size != NULL) *size = bytes;
  if (out != NULL && room < bytes) return INVALID_VALUE;
  if (out != NULL) memcpy(out, value, bytes);
  return SUCCESS;
}
static cl_int give_text(const char* text, size_t room, void* out, size_t* size) {
  return give(text, strlen(text) + 1, room, out, size);
}

/* --- platforms, devices, contexts, queues ----------------------------------------------------- */

cl_int clGetPlatformIDs(cl_uint room, void** out, cl_uint* count) {
  CHECKED;
  if (count != NULL) *count = 1;
  if (out != NULL && room > 0) out[0] = (void*)devices;
  return SUCCESS;
}
cl_int clGetPlatformInfo(void* platform, cl_uint what, size_t room, void* out, size_t* size) {
  CHECKED;
  (void)platform, (void)what;
  return give_text("stub", room, out, size);
}
cl_int clGetDeviceIDs(void* platform, cl_bitfield kind, cl_uint room, void** out, cl_uint* count) {
  CHECKED;
  (void)platform, (void)kind;
  if (count != NULL) *count = DEVICES;
  for (cl_uint i = 0; out != NULL && i < room && i < DEVICES; ++i) out[i] = &devices[i];
  return SUCCESS;
}
cl_int clGetDeviceInfo(void* id, cl_uint what, size_t room, void* out, size_t* size) {
  CHECKED;
  const device* of = id;
  const cl_bitfield kind = 1 << 2, none = 0;
  const cl_uint small = 64, yes = 1, dimensions = 3, recorded = MAX_RECORDED;
  const size_t extent = 16384, work[3] = {1024, 1024, 1024};
  const uint64_t large = (uint64_t)4 << 30;
  const struct { cl_uint number; char name[64]; } language = {3 << 22, "OpenCL C"};
  switch (what) {
    case 0x1000: return give(&kind, 8, room, out, size);
    case 0x1002: case 0x100C: case 0x100E: case 0x100F: return give(&small, 4, room, out, size);
    case 0x1003: return give(&dimensions, 4, room, out, size);
    case 0x1004: case 0x1017: return give(work, 8, room, out, size);
    case 0x1005: return give(work, 24, room, out, size);
    case 0x1011: case 0x1012: case 0x1041: return give(&extent, 8, room, out, size);
    case 0x1016: return give(&yes, 4, room, out, size);
    case 0x1010: case 0x101E: case 0x101F: case 0x1020: case 0x1023:
      return give(&large, 8, room, out, size);
    case 0x102B: return give_text(of->name, room, out, size);
    case 0x102C: case 0x102D: return give_text("stub", room, out, size);
    case 0x102F: return give_text("OpenCL 3.0 stub", room, out, size);
    case 0x103D: return give_text("OpenCL C 1.2 stub", room, out, size);
    case 0x1030: return give_text(of->extensions, room, out, size);
    case 0x1066: return give(&language, sizeof(language), room, out, size);
    case 0x12A9: return give(&of->buffer_capabilities, 8, room, out, size);
    case 0x12AA: return give(&none, 8, room, out, size);
    case 0x41DE: return give(&recorded, 4, room, out, size);
    default: return INVALID_VALUE;
  }
}
static char shown[256] = "";
static int shown_size = 0;
static void show(unsigned long number) {
  shown_size += snprintf(shown + shown_size, sizeof(shown) - shown_size, " %lx", number);
}
const char* stub_properties(void) { return shown; }

void* clCreateContext(const intptr_t* properties, cl_uint count, void* const* ids,
                      void (*notify)(const char*, const void*, size_t, void*), void* data,
                      cl_int* code) {
  ENTER;
  (void)count, (void)notify, (void)data, (void)ids;
  /* Told apart by whether there are properties: a driver may refuse those alone. */
  const int refused = properties == NULL ? SUCCESS : stub_failure(stub_find("context properties"));
  if (refused != SUCCESS) {
    if (code != NULL) *code = refused;
    return NULL;
  }
  shown_size = snprintf(shown, sizeof(shown), "context");
  for (; properties != NULL && *properties != 0; ++properties) show((unsigned long)*properties);
  MADE(malloc(1));
}
cl_int clReleaseContext(void* context) { CHECKED; RELEASED(context); }
void* clCreateCommandQueue(void* context, void* id, cl_bitfield properties, cl_int* code) {
  ENTER;
  (void)context;
  device* on = id;
  const int recordable = (properties & RECORDABLE_QUEUE) != 0;
  const int can_record = strstr(on->extensions, "recordable") != NULL;
  if (recordable && (!can_record || properties != RECORDABLE_QUEUE)) {
    if (code != NULL) *code = INVALID_QUEUE_PROPERTIES;
    return NULL;
  }
  queue* made = failed ? NULL : calloc(1, sizeof(queue));
  if (made != NULL) made->on = on, made->properties = properties;
  MADE(made);
}
void* clCreateCommandQueueWithProperties(void* context, void* id, const uint64_t* properties,
                                         cl_int* code) {
  ENTER;
  (void)context;
  shown_size += snprintf(shown + shown_size, sizeof(shown) - shown_size, " queue");
  for (; *properties != 0; ++properties) show((unsigned long)*properties);
  queue* made = failed ? NULL : calloc(1, sizeof(queue));
  if (made != NULL) made->on = id;
  MADE(made);
}
cl_int clReleaseCommandQueue(void* q) { CHECKED; RELEASED(q); }
cl_int clFinish(void* q) { CHECKED; (void)q; stub_all_done(); return SUCCESS; }
cl_int clFlush(void* q) { CHECKED; (void)q; return SUCCESS; }

/* --- memory: none is there, and what is read is zero ------------------------------------------ */

static void* new_memory(size_t bytes) {
  static long number = 0;
  memory* made = malloc(sizeof(memory));
  made->number = __atomic_add_fetch(&number, 1, __ATOMIC_RELAXED);
  made->bytes = bytes;
  return made;
}
void* clCreateBuffer(void* context, cl_bitfield flags, size_t bytes, void* host, cl_int* code) {
  ENTER;
  (void)context, (void)flags, (void)host;
  MADE(new_memory(bytes));
}
void* clCreateSubBuffer(void* whole, cl_bitfield flags, cl_uint kind, const void* region,
                        cl_int* code) {
  ENTER;
  (void)whole, (void)flags, (void)kind, (void)region;
  MADE(new_memory(0));
}
void* clCreateImage(void* context, cl_bitfield flags, const void* format, const void* description,
                    void* host, cl_int* code) {
  ENTER;
  (void)context, (void)flags, (void)format, (void)description, (void)host;
  MADE(new_memory(0));
}
cl_int clReleaseMemObject(void* of) { CHECKED; RELEASED(of); }
cl_int clEnqueueReadBuffer(void* q, void* from, cl_uint wait, size_t offset, size_t bytes, void* to,
                           cl_uint events, void* const* list, void** done) {
  CHECKED;
  (void)q, (void)from, (void)wait, (void)offset, (void)events, (void)list, (void)done;
  memset(to, 0, bytes);
  return SUCCESS;
}
#define IGNORED(name, ...) cl_int name(__VA_ARGS__) { CHECKED; return SUCCESS; }
IGNORED(clRetainMemObject, void* a)
IGNORED(clGetMemObjectInfo, void* a, cl_uint b, size_t c, void* d, size_t* e)
IGNORED(clEnqueueWriteBuffer, void* a, void* b, cl_uint c, size_t d, size_t e, const void* f,
        cl_uint g, void* const* h, void** i)
IGNORED(clEnqueueCopyBuffer, void* a, void* b, void* c, size_t d, size_t e, size_t f, cl_uint g,
        void* const* h, void** i)
IGNORED(clEnqueueReadImage, void* a, void* b, cl_uint c, const size_t* d, const size_t* e, size_t f,
        size_t g, void* h, cl_uint i, void* const* j, void** k)
IGNORED(clEnqueueWriteImage, void* a, void* b, cl_uint c, const size_t* d, const size_t* e,
        size_t f, size_t g, const void* h, cl_uint i, void* const* j, void** k)
IGNORED(clEnqueueCopyImage, void* a, void* b, void* c, const size_t* d, const size_t* e,
        const size_t* f, cl_uint g, void* const* h, void** i)
IGNORED(clEnqueueCopyImageToBuffer, void* a, void* b, void* c, const size_t* d, const size_t* e,
        size_t f, cl_uint g, void* const* h, void** i)
IGNORED(clEnqueueCopyBufferToImage, void* a, void* b, void* c, size_t d, const size_t* e,
        const size_t* f, cl_uint g, void* const* h, void** i)

/* --- programs and kernels --------------------------------------------------------------------- */

void* clCreateProgramWithSource(void* context, cl_uint count, const char** texts,
                                const size_t* lengths, cl_int* code) {
  ENTER;
  (void)context, (void)count, (void)texts, (void)lengths;
  MADE(malloc(1));
}
void* clCreateProgramWithBinary(void* context, cl_uint count, void* const* ids,
                                const size_t* lengths, const unsigned char** binaries,
                                cl_int* status, cl_int* code) {
  ENTER;
  (void)context, (void)count, (void)ids, (void)lengths, (void)binaries;
  if (status != NULL) *status = SUCCESS;
  MADE(malloc(1));
}
IGNORED(clBuildProgram, void* a, cl_uint b, void* const* c, const char* d, void (*e)(void*, void*),
        void* f)
cl_int clGetProgramBuildInfo(void* p, void* id, cl_uint what, size_t room, void* out,
                             size_t* size) {
  CHECKED;
  (void)p, (void)id, (void)what;
  return give_text("", room, out, size);
}
cl_int clGetProgramInfo(void* p, cl_uint what, size_t room, void* out, size_t* size) {
  CHECKED;
  (void)p, (void)room;
  if (size != NULL) *size = sizeof(size_t);
  if (what == 0x1165) *(size_t*)out = 4;
  if (what == 0x1166) memcpy(*(void**)out, "stub", 4);
  return SUCCESS;
}
cl_int clReleaseProgram(void* p) { CHECKED; RELEASED(p); }
void* clCreateKernel(void* p, const char* name, cl_int* code) {
  ENTER;
  (void)p;
  kernel* made = failed ? NULL : calloc(1, sizeof(kernel));
  if (made != NULL) snprintf(made->name, sizeof(made->name), "%s", name);
  MADE(made);
}
cl_int clReleaseKernel(void* k) { CHECKED; RELEASED(k); }
cl_int clSetKernelArg(void* k, cl_uint index, size_t bytes, const void* value) {
  CHECKED;
  kernel* of = k;
  if (index >= MAX_ARGUMENTS || bytes > sizeof(uint64_t)) return INVALID_VALUE;
  of->sizes[index] = bytes;
  of->values[index] = 0;
  memcpy(&of->values[index], value, bytes);
  return SUCCESS;
}
cl_int clGetKernelWorkGroupInfo(void* k, void* id, cl_uint what, size_t room, void* out,
                                size_t* size) {
  CHECKED;
  (void)k, (void)id, (void)what;
  const size_t items = 1024;
  return give(&items, sizeof(items), room, out, size);
}
cl_int clEnqueueNDRangeKernel(void* q, void* k, cl_uint dimensions, const size_t* offset,
                              const size_t* global, const size_t* local, cl_uint events,
                              void* const* waited, void** done) {
  CHECKED;
  (void)offset, (void)events, (void)waited;
  queue* on = q;
  launch made;
  stub_describe(&made, k, dimensions, global, local);
  if (on->properties & RECORDABLE_QUEUE) {
    if (on->recording == NULL || on->recording->count == MAX_RECORDED) return INVALID_OPERATION;
    stub_append(on->recording, &made);
    return SUCCESS;
  }
  stub_compute(&made);
  if (done != NULL) *done = stub_new_event(NULL);
  return SUCCESS;
}

/* --- events ----------------------------------------------------------------------------------- */

cl_int clEnqueueMarkerWithWaitList(void* q, cl_uint count, void* const* waited, void** done) {
  CHECKED;
  (void)q, (void)count, (void)waited;
  if (done != NULL) *done = stub_new_event(NULL);
  return SUCCESS;
}
cl_int clWaitForEvents(cl_uint count, void* const* waited) {
  CHECKED;
  for (cl_uint i = 0; i < count; ++i) {
    list* of = ((event*)waited[i])->of;
    if (of != NULL) of->pending = 0;
  }
  return SUCCESS;
}
cl_int clGetEventProfilingInfo(void* e, cl_uint what, size_t room, void* out, size_t* size) {
  CHECKED;
  (void)e;
  const uint64_t time_ns = what == 0x1283 ? 2000 : 1000;
  return give(&time_ns, 8, room, out, size);
}
cl_int clReleaseEvent(void* e) { CHECKED; RELEASED(e); }
