/* An OpenCL library whose devices refuse to launch while ADRENOC_TEST_FAIL_LAUNCH is set, to give
 * memory with ADRENOC_TEST_FAIL_MEMORY, to build with ADRENOC_TEST_FAIL_BUILD.
 * All else comes from the library that it is linked with. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

int32_t clEnqueueNDRangeKernel(void* queue, void* kernel, uint32_t rank, const size_t* offset,
                               const size_t* global, const size_t* local, uint32_t count,
                               const void* waits, void* event) {
  int32_t (*real)(void*, void*, uint32_t, const size_t*, const size_t*, const size_t*, uint32_t,
                  const void*, void*);
  if (getenv("ADRENOC_TEST_FAIL_LAUNCH") != NULL) return -5; /* CL_OUT_OF_RESOURCES */
  *(void**)&real = dlsym(RTLD_NEXT, "clEnqueueNDRangeKernel");
  return real(queue, kernel, rank, offset, global, local, count, waits, event);
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
