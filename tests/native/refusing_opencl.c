/* An OpenCL library that refuses some images and knows only OpenCL C 1.2, to see what is said
 * then.  All other functions come from the library that it is linked with.
 * An image of height 100 is always refused; one of height 50 until memory has been released. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct format { uint32_t order, type; };
struct description { uint32_t type; size_t width, height, depth, layers, row, slice;
                     uint32_t levels, samples; void* memory; };

static int released = 0;

void* clCreateImage(void* context, uint64_t flags, const struct format* format,
                    const struct description* description, void* host, int32_t* code) {
  void* (*real)(void*, uint64_t, const struct format*, const struct description*, void*, int32_t*);
  if (description->height == 100 || (description->height == 50 && !released)) {
    *code = description->height == 100 ? -4 : -5;
    return NULL;
  }
  *(void**)&real = dlsym(RTLD_NEXT, "clCreateImage");
  return real(context, flags, format, description, host, code);
}

int32_t clReleaseMemObject(void* memory) {
  int32_t (*real)(void*);
  released = 1;
  *(void**)&real = dlsym(RTLD_NEXT, "clReleaseMemObject");
  return real(memory);
}

int32_t clGetDeviceInfo(void* device, uint32_t what, size_t room, void* value, size_t* size) {
  static const char language[] = "OpenCL C 1.2 ";
  int32_t (*real)(void*, uint32_t, size_t, void*, size_t*);
  if (what == 0x1066) return -30; /* CL_DEVICE_OPENCL_C_ALL_VERSIONS */
  if (what == 0x103D) {           /* CL_DEVICE_OPENCL_C_VERSION */
    if (size != NULL) *size = sizeof(language);
    if (value != NULL && room >= sizeof(language)) memcpy(value, language, sizeof(language));
    return 0;
  }
  *(void**)&real = dlsym(RTLD_NEXT, "clGetDeviceInfo");
  return real(device, what, room, value, size);
}
