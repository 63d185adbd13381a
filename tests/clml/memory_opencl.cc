// An OpenCL library with one device that has buffers and nothing else: the emulator of OpenCL ML
// needs no more, so it can run under sanitizers without a driver.  Buffers hold their bytes, queues
// and the like are counted; `live` says how many of them are left.
#include "opencl/cl_types.h"

#include <cstdlib>
#include <cstring>
#include <string>

namespace adrenoc_runtime {
namespace opencl {

struct cl_platform_object {};
struct cl_device_object {};

// Every function of the library that nothing below defines does nothing and gives nothing.
#define ADRENOC_CL_FUNCTION(name, result, parameters) \
  extern "C" __attribute__((weak)) result name parameters;
#include "opencl/cl_functions.def"
#undef ADRENOC_CL_FUNCTION

namespace {

cl_platform_object the_platform;
cl_device_object the_device;
int live_count = 0;
std::string failing_call;
int failing_after = 0;

// Whether this call is the one that was told to fail.
bool fails(const char* call) {
  if (failing_call != call || failing_after-- > 0) return false;
  failing_call.clear();
  return true;
}

template <typename T>
T make_handle(size_t bytes, cl_int* code) {
  ++live_count;
  *code = CL_SUCCESS;
  return reinterpret_cast<T>(std::calloc(1, bytes));
}

cl_int drop_handle(void* handle) {
  --live_count;
  std::free(handle);
  return CL_SUCCESS;
}

cl_int answer(const char* text, size_t room, void* value, size_t* size) {
  const size_t length = std::strlen(text) + 1;
  if (size != nullptr) *size = length;
  if (value != nullptr) std::memcpy(value, text, room < length ? room : length);
  return CL_SUCCESS;
}

}  // namespace

extern "C" {

int live_opencl_objects() { return live_count; }

// `call` fails once, after so many successes; "" ends it.
void fail_opencl(const char* call, int after) {
  failing_call = call;
  failing_after = after;
}

cl_int clGetPlatformIDs(cl_uint, cl_platform_id* ids, cl_uint* count) {
  if (count != nullptr) *count = 1;
  if (ids != nullptr) *ids = &the_platform;
  return CL_SUCCESS;
}

cl_int clGetPlatformInfo(cl_platform_id, cl_uint, size_t room, void* value, size_t* size) {
  return answer("memory", room, value, size);
}

cl_int clGetDeviceIDs(cl_platform_id, cl_bitfield, cl_uint, cl_device_id* ids, cl_uint* count) {
  if (count != nullptr) *count = 1;
  if (ids != nullptr) *ids = &the_device;
  return CL_SUCCESS;
}

cl_int clGetDeviceInfo(cl_device_id, cl_uint what, size_t room, void* value, size_t* size) {
  switch (what) {
    case CL_DEVICE_NAME:
    case CL_DEVICE_VENDOR:
    case CL_DRIVER_VERSION:
      return answer("memory", room, value, size);
    case CL_DEVICE_EXTENSIONS:
      return answer("cl_qcom_ml_ops cl_qcom_recordable_queues", room, value, size);
    case CL_DEVICE_VERSION:
      return answer("OpenCL 3.0 memory", room, value, size);
    case CL_DEVICE_OPENCL_C_VERSION:
      return answer("OpenCL C 3.0 memory", room, value, size);
    case CL_DEVICE_OPENCL_C_ALL_VERSIONS:
      return CL_INVALID_VALUE;
    default:
      break;
  }
  // Plenty of everything, and no images.
  if (size != nullptr) *size = room;
  if (value != nullptr) {
    std::memset(value, 0, room);
    if (what != CL_DEVICE_IMAGE_SUPPORT && what != CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS &&
        room >= sizeof(cl_uint)) {
      const cl_uint much = 1u << 30;
      std::memcpy(value, &much, sizeof(much));
    }
  }
  return CL_SUCCESS;
}

cl_context clCreateContext(const intptr_t*, cl_uint, const cl_device_id*,
                           void (*)(const char*, const void*, size_t, void*), void*,
                           cl_int* code) {
  return make_handle<cl_context>(1, code);
}
cl_int clReleaseContext(cl_context context) { return drop_handle(context); }

cl_command_queue clCreateCommandQueue(cl_context, cl_device_id, cl_bitfield, cl_int* code) {
  return make_handle<cl_command_queue>(1, code);
}
cl_int clReleaseCommandQueue(cl_command_queue queue) { return drop_handle(queue); }
cl_int clFinish(cl_command_queue) { return CL_SUCCESS; }

cl_mem clCreateBuffer(cl_context, cl_bitfield, size_t bytes, void*, cl_int* code) {
  if (fails("clCreateBuffer")) {
    *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return nullptr;
  }
  return make_handle<cl_mem>(bytes, code);
}
cl_int clReleaseMemObject(cl_mem memory) { return drop_handle(memory); }

cl_int clEnqueueReadBuffer(cl_command_queue, cl_mem memory, cl_uint, size_t offset, size_t bytes,
                           void* data, cl_uint, const cl_event*, cl_event*) {
  if (fails("clEnqueueReadBuffer")) return CL_OUT_OF_RESOURCES;
  std::memcpy(data, reinterpret_cast<const char*>(memory) + offset, bytes);
  return CL_SUCCESS;
}

cl_int clEnqueueWriteBuffer(cl_command_queue, cl_mem memory, cl_uint, size_t offset, size_t bytes,
                            const void* data, cl_uint, const cl_event*, cl_event*) {
  if (fails("clEnqueueWriteBuffer")) return CL_OUT_OF_RESOURCES;
  std::memcpy(reinterpret_cast<char*>(memory) + offset, data, bytes);
  return CL_SUCCESS;
}

}  // extern "C"

}  // namespace opencl
}  // namespace adrenoc_runtime
