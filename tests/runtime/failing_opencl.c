/* An OpenCL library whose devices refuse to launch while ADRENOC_TEST_FAIL_LAUNCH is set.
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
