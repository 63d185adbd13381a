/* An OpenCL library that takes AHardwareBuffers: as Qualcomm's do, by extension
 * cl_qcom_android_ahardwarebuffer_host_ptr, or, with ADRENOC_TEST_HARDWARE_BUFFER=khr, by
 * cl_khr_external_memory_android_hardware_buffer, whose memory has to be acquired before a kernel
 * runs.  The memory of the "buffer" is what the program says.  All else comes from the library that
 * it is linked with. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { INVALID_VALUE = -30, INVALID_MEM_OBJECT = -38, INVALID_OPERATION = -59 };

struct external { uint32_t type, policy; void* buffer; };

static const char qualcomm[] = " cl_qcom_android_ahardwarebuffer_host_ptr";
static const char khronos[] =
    " cl_khr_external_memory cl_khr_external_memory_android_hardware_buffer";

/* What was imported by the second way, and whether it is acquired. */
static struct { void* memory; int acquired; } imported[64];
static int imports;

static int is_khronos(void) { return strcmp(getenv("ADRENOC_TEST_HARDWARE_BUFFER"), "khr") == 0; }

static void* program(const char* name) { return dlsym(RTLD_DEFAULT, name); }
static void* real(const char* name) { return dlsym(RTLD_NEXT, name); }

int32_t clGetDeviceInfo(void* device, uint32_t what, size_t room, void* value, size_t* size) {
  int32_t (*ask)(void*, uint32_t, size_t, void*, size_t*);
  const char* more = is_khronos() ? khronos : qualcomm;
  size_t own = 0;
  int32_t code;
  *(void**)&ask = real("clGetDeviceInfo");
  if (what != 0x1030) return ask(device, what, room, value, size);
  code = ask(device, what, 0, NULL, &own); /* CL_DEVICE_EXTENSIONS */
  if (code != 0) return code;
  if (size != NULL) *size = own + strlen(more);
  if (value == NULL) return 0;
  if (room < own + strlen(more)) return INVALID_VALUE;
  code = ask(device, what, own, value, NULL);
  strcat(value, more);
  return code;
}

void* clCreateBuffer(void* context, uint64_t flags, size_t bytes, void* host, int32_t* code) {
  void* (*create)(void*, uint64_t, size_t, void*, int32_t*);
  void* (*memory_of)(void*);
  struct external* external = host;
  *(void**)&create = real("clCreateBuffer");
  if ((flags & 1u << 29) == 0) return create(context, flags, bytes, host, code);
  /* Flags and structure have to be just those. */
  if (flags != (1u | 1u << 3 | 1u << 29) || external->type != 0x4119 ||
      external->policy != 0x40A5 || is_khronos()) {
    *code = INVALID_VALUE;
    return NULL;
  }
  *(void**)&memory_of = program("test_memory_of");
  return create(context, 1u | 1u << 3, bytes, memory_of(external->buffer), code);
}

void* clCreateBufferWithProperties(void* context, const uint64_t* properties, uint64_t flags,
                                   size_t bytes, void* host, int32_t* code) {
  void* (*create)(void*, uint64_t, size_t, void*, int32_t*);
  void* (*memory_of)(void*);
  size_t (*bytes_of)(void*);
  void* buffer = (void*)(uintptr_t)properties[1];
  *(void**)&create = real("clCreateBuffer");
  *(void**)&memory_of = program("test_memory_of");
  *(void**)&bytes_of = program("test_bytes_of");
  /* The size is the buffer's own, so none is given. */
  if (properties[0] != 0x2070 || properties[2] != 0 || flags != 1 || bytes != 0 || host != NULL ||
      imports == sizeof(imported) / sizeof(*imported)) {
    *code = INVALID_VALUE;
    return NULL;
  }
  imported[imports].memory =
      create(context, 1u | 1u << 3, bytes_of(buffer), memory_of(buffer), code);
  return imported[imports++].memory;
}

static int32_t hand_over(uint32_t count, void* const* memory, int acquire) {
  for (uint32_t i = 0; i < count; ++i) {
    int place = 0;
    while (place < imports && imported[place].memory != memory[i]) ++place;
    if (place == imports) return INVALID_MEM_OBJECT;
    if (imported[place].acquired == acquire) return INVALID_OPERATION;
    imported[place].acquired = acquire;
  }
  return 0;
}

int32_t clEnqueueAcquireExternalMemObjectsKHR(void* queue, uint32_t count, void* const* memory,
                                              uint32_t waits, void* const* events, void** event) {
  (void)queue, (void)waits, (void)events, (void)event;
  return hand_over(count, memory, 1);
}

int32_t clEnqueueReleaseExternalMemObjectsKHR(void* queue, uint32_t count, void* const* memory,
                                              uint32_t waits, void* const* events, void** event) {
  (void)queue, (void)waits, (void)events, (void)event;
  return hand_over(count, memory, 0);
}

/* The program asks how many of its buffers the device has. */
int test_acquired(void) {
  int count = 0;
  for (int i = 0; i < imports; ++i) count += imported[i].acquired;
  return count;
}

int32_t clEnqueueNDRangeKernel(void* queue, void* kernel, uint32_t dimensions, const size_t* offset,
                               const size_t* global, const size_t* local, uint32_t waits,
                               void* const* events, void** event) {
  int32_t (*launch)(void*, void*, uint32_t, const size_t*, const size_t*, const size_t*, uint32_t,
                    void* const*, void**);
  *(void**)&launch = real("clEnqueueNDRangeKernel");
  if (test_acquired() != imports) return INVALID_OPERATION;
  return launch(queue, kernel, dimensions, offset, global, local, waits, events, event);
}

void* clGetExtensionFunctionAddressForPlatform(void* platform, const char* name) {
  void* (*find)(void*, const char*);
  *(void**)&find = real("clGetExtensionFunctionAddressForPlatform");
  if (strcmp(name, "clCreateBufferWithProperties") == 0) return clCreateBufferWithProperties;
  if (strcmp(name, "clEnqueueAcquireExternalMemObjectsKHR") == 0)
    return clEnqueueAcquireExternalMemObjectsKHR;
  if (strcmp(name, "clEnqueueReleaseExternalMemObjectsKHR") == 0)
    return clEnqueueReleaseExternalMemObjectsKHR;
  return find(platform, name);
}
