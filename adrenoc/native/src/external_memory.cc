#include "external_memory.h"

#include <dlfcn.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>

#include <memory>
#include <string>
#include <utility>

#include "failure.h"

namespace adrenoc {
namespace opencl {
namespace {

namespace ffi = tvm::ffi;

constexpr const char* kHardwareBufferExtension = "cl_qcom_android_ahardwarebuffer_host_ptr";
constexpr uint32_t kBlobFormat = 0x21;  // AHARDWAREBUFFER_FORMAT_BLOB: `width` bytes, one row

// AHardwareBuffer_Desc of android/hardware_buffer.h.
struct HardwareBufferFacts {
  uint32_t width;
  uint32_t height;
  uint32_t layers;
  uint32_t format;
  uint64_t usage;
  uint32_t stride;
  uint32_t reserved0;
  uint64_t reserved1;
};
using Describe = void (*)(const void* buffer, HardwareBufferFacts* facts);

// Opened at run time: it came with API level 26.
Describe find_describe() {
  constexpr const char* name = "AHardwareBuffer_describe";
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) {
    void* library = dlopen("libnativewindow.so", RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) found = dlsym(library, name);
  }
  return reinterpret_cast<Describe>(found);
}

template <typename T>
T memory_fact(cl_mem memory, cl_uint what) {
  T value{};
  ADRENOC_CL_CALL(clGetMemObjectInfo, memory, what, sizeof(value), &value, nullptr);
  return value;
}

[[noreturn]] void refuse(const std::string& message) {
  throw Failure(ADRENOC_BAD_ARGUMENT, message);
}

// Hands a descriptor to a tensor of TVM, which ends it.
struct Given {
  Descriptor* descriptor;
  void AllocData(DLTensor* tensor) const { tensor->data = descriptor; }
  void FreeData(DLTensor*) const { delete descriptor; }
};

tvm::runtime::Tensor tensor_in(MemHandle memory, size_t bytes, DLDevice device,
                               ffi::ShapeView shape, DLDataType dtype) {
  auto storage = std::make_shared<Storage>();
  storage->spec = StorageSpec::buffer(bytes);
  storage->mem = std::move(memory);
  return ffi::Tensor::FromNDAlloc(Given{new Descriptor(std::move(storage))}, shape, dtype, device);
}

size_t bytes_of(ffi::ShapeView shape, DLDataType dtype) {
  size_t elements = 1;
  for (const int64_t extent : shape) elements *= static_cast<size_t>(extent);
  return ffi::GetDataSize(elements, dtype);
}

}  // namespace

tvm::runtime::Tensor tensor_in_buffer(DLDevice device, cl_mem buffer, ffi::ShapeView shape,
                                      DLDataType dtype) {
  const size_t bytes = bytes_of(shape, dtype);
  if (memory_fact<cl_uint>(buffer, CL_MEM_TYPE) != CL_MEM_OBJECT_BUFFER) {
    refuse("the cl_mem is an image, expected a buffer");
  }
  if (memory_fact<cl_context>(buffer, CL_MEM_CONTEXT) != device_at(device.device_id).context()) {
    refuse("the cl_mem is of another context; make it in the one of adrenoc_opencl_context");
  }
  const auto room = memory_fact<size_t>(buffer, CL_MEM_SIZE);
  if (room < bytes) {
    refuse("the cl_mem has " + std::to_string(room) + " bytes, expected " + std::to_string(bytes));
  }
  ADRENOC_CL_CALL(clRetainMemObject, buffer);
  return tensor_in(MemHandle(buffer), room, device, shape, dtype);
}

tvm::runtime::Tensor tensor_in_hardware_buffer(DLDevice device, void* buffer,
                                               ffi::ShapeView shape, DLDataType dtype) {
  const size_t bytes = bytes_of(shape, dtype);
  Device& place = device_at(device.device_id);
  if (!place.info().has_extension(kHardwareBufferExtension)) {
    throw Failure(ADRENOC_UNSUPPORTED,
                  place.info().name + " cannot use an AHardwareBuffer as memory: it lacks " +
                      kHardwareBufferExtension);
  }
  const Describe describe = find_describe();
  if (describe == nullptr) {
    throw Failure(ADRENOC_UNSUPPORTED, "this system has no AHardwareBuffer (Android 8 and newer)");
  }
  HardwareBufferFacts facts{};
  describe(buffer, &facts);
  if (facts.format != kBlobFormat) {
    refuse("the AHardwareBuffer has format " + std::to_string(facts.format) +
           ", expected AHARDWAREBUFFER_FORMAT_BLOB (33)");
  }
  if (facts.width < bytes) {
    refuse("the AHardwareBuffer has " + std::to_string(facts.width) + " bytes, expected " +
           std::to_string(bytes));
  }
  cl_mem_android_ahardwarebuffer_host_ptr_qcom external = {
      CL_MEM_ANDROID_AHARDWAREBUFFER_HOST_PTR_QCOM, CL_MEM_HOST_WRITEBACK_QCOM, buffer};
  cl_int code = CL_SUCCESS;
  MemHandle memory(api().clCreateBuffer(
      place.context(), CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR | CL_MEM_EXT_HOST_PTR_QCOM,
      facts.width, &external, &code));
  check(code, "clCreateBuffer of an AHardwareBuffer");
  return tensor_in(std::move(memory), facts.width, device, shape, dtype);
}

}  // namespace opencl
}  // namespace adrenoc
