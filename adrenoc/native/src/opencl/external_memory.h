// Memory that an app made, as a tensor: the device reads and writes it in place.
#pragma once

#include <dlfcn.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/runtime/tensor.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

namespace ffi = tvm::ffi;

template <typename T>
T memory_fact(cl_mem memory, cl_uint what) {
  T value{};
  ADRENOC_CL_CALL(clGetMemObjectInfo, memory, what, sizeof(value), &value, nullptr);
  return value;
}

// Hands a descriptor to a tensor of TVM, which ends it.
struct Given {
  Descriptor* descriptor;
  void AllocData(DLTensor* tensor) const { tensor->data = descriptor; }
  void FreeData(DLTensor*) const { delete descriptor; }
};

inline tvm::runtime::Tensor tensor_in(MemHandle memory, size_t bytes, DLDevice device,
                                      ffi::ShapeView shape, DLDataType dtype, bool is_handed_over) {
  auto storage = std::make_shared<Storage>();
  storage->is_handed_over = is_handed_over;
  storage->spec = StorageSpec::buffer(bytes);
  storage->mem = std::move(memory);
  return ffi::Tensor::FromNDAlloc(Given{new Descriptor(std::move(storage))}, shape, dtype, device);
}

inline MemHandle part_of(cl_mem buffer, uint64_t offset, size_t bytes) {
  const cl_buffer_region region = {static_cast<size_t>(offset), bytes};
  cl_int code = CL_SUCCESS;
  MemHandle part(api().clCreateSubBuffer(buffer, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION,
                                         &region, &code));
  if (code == CL_MISALIGNED_SUB_BUFFER_OFFSET) {
    refuse_argument({"the device takes no part of a cl_mem from byte ", offset,
                     " on; expected a multiple of its CL_DEVICE_MEM_BASE_ADDR_ALIGN"});
  }
  check(code, "clCreateSubBuffer");
  return part;
}

inline size_t bytes_of(ffi::ShapeView shape, DLDataType dtype) {
  size_t elements = 1;
  for (const int64_t extent : shape) elements *= static_cast<size_t>(extent);
  return ffi::GetDataSize(elements, dtype);
}

// A dense tensor in an OpenCL buffer from `offset` bytes on, which is retained for as long as the
// tensor lives.  Throws Failure (bad argument) for an image, a buffer of another context, one that
// is too small, or an offset that the device does not take.
[[nodiscard]] inline tvm::runtime::Tensor tensor_in_buffer(DLDevice device, cl_mem buffer,
                                                           uint64_t offset,
                                                           tvm::ffi::ShapeView shape,
                                                           DLDataType dtype) {
  const size_t bytes = bytes_of(shape, dtype);
  if (memory_fact<cl_uint>(buffer, CL_MEM_TYPE) != CL_MEM_OBJECT_BUFFER) {
    refuse_argument("the cl_mem is an image, expected a buffer");
  }
  if (memory_fact<cl_context>(buffer, CL_MEM_CONTEXT) != device_at(device.device_id).context()) {
    refuse_argument(
        "the cl_mem is of another context; make it in the one of adrenoc_opencl_context");
  }
  const auto room = memory_fact<size_t>(buffer, CL_MEM_SIZE);
  if (offset > room || room - offset < bytes) {
    refuse_argument({"the cl_mem has ", room, " bytes, expected ", bytes,
                     (offset == 0 ? "" : " from byte " + std::to_string(offset) + " on")});
  }
  if (offset != 0) {
    return tensor_in(part_of(buffer, offset, bytes), bytes, device, shape, dtype, false);
  }
  ADRENOC_CL_CALL(clRetainMemObject, buffer);
  return tensor_in(MemHandle(buffer), room, device, shape, dtype, false);
}

constexpr const char* kQualcommExtension = "cl_qcom_android_ahardwarebuffer_host_ptr";
// Of OpenCL's own working group, and still provisional: the second choice.
constexpr const char* kKhronosExtension = "cl_khr_external_memory_android_hardware_buffer";
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
inline Describe find_describe() {
  constexpr const char* name = "AHardwareBuffer_describe";
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) {
    void* library = dlopen("libnativewindow.so", RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) found = dlsym(library, name);
  }
  return reinterpret_cast<Describe>(found);
}

using CreateBuffer = MemHandle (*)(Device& device, void* buffer, size_t bytes);

inline MemHandle create_by_host_pointer(Device& device, void* buffer, size_t bytes) {
  cl_mem_android_ahardwarebuffer_host_ptr_qcom external = {
      CL_MEM_ANDROID_AHARDWAREBUFFER_HOST_PTR_QCOM, CL_MEM_HOST_WRITEBACK_QCOM, buffer};
  cl_int code = CL_SUCCESS;
  MemHandle memory(api().clCreateBuffer(
      device.context(), CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR | CL_MEM_EXT_HOST_PTR_QCOM, bytes,
      &external, &code));
  check(code, "clCreateBuffer of an AHardwareBuffer");
  return memory;
}

inline MemHandle create_by_import(Device& device, void* buffer, size_t) {
  const cl_ulong properties[] = {CL_EXTERNAL_MEMORY_HANDLE_ANDROID_HARDWARE_BUFFER,
                                 static_cast<cl_ulong>(reinterpret_cast<uintptr_t>(buffer)), 0};
  cl_int code = CL_SUCCESS;
  const ExternalMemoryApi functions{device.platform()};
  count_api_call();
  // The buffer's own size holds: it has to be left out.
  MemHandle memory(
      functions.create_buffer(device.context(), properties, CL_MEM_READ_WRITE, 0, nullptr, &code));
  check(code, "clCreateBufferWithProperties of an AHardwareBuffer");
  return memory;
}

// A dense tensor in an AHardwareBuffer of the format BLOB, which must outlive the tensor.  Throws
// Failure: unsupported where the device or the system cannot do that, bad argument for another
// format or too few bytes.
[[nodiscard]] inline tvm::runtime::Tensor tensor_in_hardware_buffer(DLDevice device, void* buffer,
                                                                    tvm::ffi::ShapeView shape,
                                                                    DLDataType dtype) {
  const size_t bytes = bytes_of(shape, dtype);
  Device& place = device_at(device.device_id);
  const bool is_qualcomm = place.info().has_extension(kQualcommExtension);
  if (!is_qualcomm && !place.info().has_extension(kKhronosExtension)) {
    throw Failure(ADRENOC_UNSUPPORTED,
                  {place.info().name, " cannot use an AHardwareBuffer as memory: it lacks ",
                   kQualcommExtension, " and ", kKhronosExtension});
  }
  const Describe describe = find_describe();
  if (describe == nullptr) {
    throw Failure(ADRENOC_UNSUPPORTED, "this system has no AHardwareBuffer (Android 8 and newer)");
  }
  HardwareBufferFacts facts{};
  describe(buffer, &facts);
  if (facts.format != kBlobFormat) {
    refuse_argument({"the AHardwareBuffer has format ", facts.format,
                     ", expected AHARDWAREBUFFER_FORMAT_BLOB (33)"});
  }
  if (facts.width < bytes) {
    refuse_argument({"the AHardwareBuffer has ", facts.width, " bytes, expected ", bytes});
  }
  const CreateBuffer create = is_qualcomm ? create_by_host_pointer : create_by_import;
  return tensor_in(create(place, buffer, facts.width), facts.width, device, shape, dtype,
                   !is_qualcomm);
}

// Hands memory of the app to a device for as long as commands use it, where its kind asks for that.
class HandedOver {
 public:
  // `tensors` are of one device; those that need no handing over are left out.
  HandedOver(DLDevice device, const std::vector<tvm::runtime::Tensor>& tensors) : device_(device) {
    std::vector<cl_mem> wanted;
    for (const tvm::runtime::Tensor& tensor : tensors) {
      const Storage& storage = *static_cast<const Descriptor*>(tensor->data)->storage();
      if (storage.is_handed_over) wanted.push_back(storage.mem.get());
    }
    if (wanted.empty()) return;
    Device& place = device_at(device.device_id);
    functions_.emplace(ExternalMemoryApi{place.platform()});
    count_api_call();
    check(functions_->acquire(place.lock_queue().get(), static_cast<cl_uint>(wanted.size()),
                              wanted.data(), 0, nullptr, nullptr),
          "clEnqueueAcquireExternalMemObjectsKHR");
    memory_ = std::move(wanted);
  }
  HandedOver(const HandedOver&) = delete;
  HandedOver& operator=(const HandedOver&) = delete;
  // Gives back what is left, as far as that can be had without an error.
  ~HandedOver() {
    try {
      give_back();
    } catch (const std::exception&) {
      // What made the run fail is on its way, and tells more.
    }
  }

  // Gives it back after the commands that were given so far; returns when that is done.
  void give_back() {
    if (memory_.empty()) return;
    const std::vector<cl_mem> memory = std::exchange(memory_, {});
    Device& place = device_at(device_.device_id);
    count_api_call();
    check(functions_->release(place.lock_queue().get(), static_cast<cl_uint>(memory.size()),
                              memory.data(), 0, nullptr, nullptr),
          "clEnqueueReleaseExternalMemObjectsKHR");
    place.finish();
  }

 private:
  DLDevice device_;
  std::vector<cl_mem> memory_;
  std::optional<ExternalMemoryApi> functions_;
};

}  // namespace adrenoc_runtime::opencl
