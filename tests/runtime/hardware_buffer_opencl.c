/* An OpenCL library that takes AHardwareBuffers as Qualcomm's do, by extension
 * cl_qcom_android_ahardwarebuffer_host_ptr: the memory of the "buffer" is what the program says.
 * All else comes from the library that it is linked with. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct external { uint32_t type, policy; void* buffer; };

static const char extension[] = " cl_qcom_android_ahardwarebuffer_host_ptr";

int32_t clGetDeviceInfo(void* device, uint32_t what, size_t room, void* value, size_t* size) {
  int32_t (*real)(void*, uint32_t, size_t, void*, size_t*);
  size_t own = 0;
  int32_t code;
  *(void**)&real = dlsym(RTLD_NEXT, "clGetDeviceInfo");
  if (what != 0x1030) return real(device, what, room, value, size);
  code = real(device, what, 0, NULL, &own); /* CL_DEVICE_EXTENSIONS */
  if (code != 0) return code;
  if (size != NULL) *size = own + sizeof(extension) - 1;
  if (value == NULL) return 0;
  if (room < own + sizeof(extension) - 1) return -30;
  code = real(device, what, own, value, NULL);
  strcat(value, extension);
  return code;
}

void* clCreateBuffer(void* context, uint64_t flags, size_t bytes, void* host, int32_t* code) {
  void* (*real)(void*, uint64_t, size_t, void*, int32_t*);
  void* (*memory_of)(void*);
  struct external* external = host;
  *(void**)&real = dlsym(RTLD_NEXT, "clCreateBuffer");
  if ((flags & 1u << 29) == 0) return real(context, flags, bytes, host, code);
  /* Flags and structure have to be just those. */
  if (flags != (1u | 1u << 3 | 1u << 29) || external->type != 0x4119 || external->policy != 0x40A5) {
    *code = -30;
    return NULL;
  }
  *(void**)&memory_of = dlsym(RTLD_DEFAULT, "test_memory_of");
  return real(context, 1u | 1u << 3, bytes, memory_of(external->buffer), code);
}
