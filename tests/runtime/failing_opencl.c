/* An OpenCL library whose devices refuse to launch while ADRENOC_TEST_FAIL_LAUNCH is set, to give
 * memory with ADRENOC_TEST_FAIL_MEMORY, to build with ADRENOC_TEST_FAIL_BUILD, to give what was built
 * with ADRENOC_TEST_FAIL_BINARIES, and to finish once something was launched with
 * ADRENOC_TEST_FAIL_FINISH.  They do not come back from that while the file is there that
 * ADRENOC_TEST_HANG names.
 * All else comes from the library that it is linked with. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

static int launched = 0;

int32_t clEnqueueNDRangeKernel(void* queue, void* kernel, uint32_t rank, const size_t* offset,
                               const size_t* global, const size_t* local, uint32_t count,
                               const void* waits, void* event) {
  int32_t (*real)(void*, void*, uint32_t, const size_t*, const size_t*, const size_t*, uint32_t,
                  const void*, void*);
  if (getenv("ADRENOC_TEST_FAIL_LAUNCH") != NULL) return -5; /* CL_OUT_OF_RESOURCES */
  launched = 1;
  *(void**)&real = dlsym(RTLD_NEXT, "clEnqueueNDRangeKernel");
  return real(queue, kernel, rank, offset, global, local, count, waits, event);
}

int32_t clFinish(void* queue) {
  int32_t (*real)(void*);
  const char* hang = getenv("ADRENOC_TEST_HANG");
  while (launched && hang != NULL && access(hang, F_OK) == 0) usleep(10000);
  if (launched && getenv("ADRENOC_TEST_FAIL_FINISH") != NULL) return -5;
  *(void**)&real = dlsym(RTLD_NEXT, "clFinish");
  return real(queue);
}

int32_t clGetProgramInfo(void* program, uint32_t what, size_t room, void* out, size_t* size) {
  int32_t (*real)(void*, uint32_t, size_t, void*, size_t*);
  if (getenv("ADRENOC_TEST_FAIL_BINARIES") != NULL) return -6; /* CL_OUT_OF_HOST_MEMORY */
  *(void**)&real = dlsym(RTLD_NEXT, "clGetProgramInfo");
  return real(program, what, room, out, size);
}

void* clCreateBuffer(void* context, uint64_t flags, size_t bytes, void* host, int32_t* code) {
  void* (*real)(void*, uint64_t, size_t, void*, int32_t*);
  if (getenv("ADRENOC_TEST_FAIL_MEMORY") != NULL) {
    *code = -4; /* CL_MEM_OBJECT_ALLOCATION_FAILURE */
    return NULL;
  }
  *(void**)&real = dlsym(RTLD_NEXT, "clCreateBuffer");
  return real(context, flags, bytes, host, code);
}

int32_t clBuildProgram(void* program, uint32_t count, const void* devices, const char* options,
                       void* then, void* data) {
  int32_t (*real)(void*, uint32_t, const void*, const char*, void*, void*);
  if (getenv("ADRENOC_TEST_FAIL_BUILD") != NULL) return -11; /* CL_BUILD_PROGRAM_FAILURE */
  *(void**)&real = dlsym(RTLD_NEXT, "clBuildProgram");
  return real(program, count, devices, options, then, data);
}
