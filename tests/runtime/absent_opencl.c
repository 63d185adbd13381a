/* An OpenCL library whose drivers are not there, or broken, as ADRENOC_TEST_ABSENT says:
 *   registry    no platform, by the code of Khronos' loader
 *   platforms   no platform, and no error
 *   devices     platforms that have no device
 *   lost        platforms that fail as they list their devices
 *   broken      one more platform, the first, that fails so and has no name
 *   facts       devices that tell nothing of themselves
 *   images      devices without images
 * All else comes from the library that it is linked with. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int broken = 0; /* what a platform's handle points to */

static int is(const char* kind) {
  const char* asked = getenv("ADRENOC_TEST_ABSENT");
  return asked != NULL && strcmp(asked, kind) == 0;
}

int32_t clGetPlatformIDs(uint32_t room, void** platforms, uint32_t* count) {
  int32_t (*real)(uint32_t, void**, uint32_t*);
  if (is("registry")) return -1001; /* CL_PLATFORM_NOT_FOUND_KHR */
  if (is("platforms")) {
    if (count != NULL) *count = 0;
    return 0;
  }
  *(void**)&real = dlsym(RTLD_NEXT, "clGetPlatformIDs");
  if (!is("broken")) return real(room, platforms, count);
  if (platforms != NULL) platforms[0] = &broken;
  const int32_t code = room > 1 ? real(room - 1, platforms + 1, count) : real(0, NULL, count);
  if (count != NULL) ++*count;
  return code;
}

int32_t clGetPlatformInfo(void* platform, uint32_t what, size_t room, void* value, size_t* size) {
  int32_t (*real)(void*, uint32_t, size_t, void*, size_t*);
  if (platform == &broken) return -32; /* CL_INVALID_PLATFORM */
  *(void**)&real = dlsym(RTLD_NEXT, "clGetPlatformInfo");
  return real(platform, what, room, value, size);
}

int32_t clGetDeviceIDs(void* platform, uint64_t kind, uint32_t room, void** devices,
                       uint32_t* count) {
  int32_t (*real)(void*, uint64_t, uint32_t, void**, uint32_t*);
  if (is("devices")) return -1; /* CL_DEVICE_NOT_FOUND */
  if (is("lost") || platform == &broken) return -2; /* CL_DEVICE_NOT_AVAILABLE */
  *(void**)&real = dlsym(RTLD_NEXT, "clGetDeviceIDs");
  return real(platform, kind, room, devices, count);
}

int32_t clGetDeviceInfo(void* device, uint32_t what, size_t room, void* value, size_t* size) {
  int32_t (*real)(void*, uint32_t, size_t, void*, size_t*);
  *(void**)&real = dlsym(RTLD_NEXT, "clGetDeviceInfo");
  int32_t code = real(device, what, room, value, size);
  if (is("facts")) return -30; /* CL_INVALID_VALUE */
  if (is("images") && what == 0x1016 && value != NULL) *(uint32_t*)value = 0;
  return code;
}
