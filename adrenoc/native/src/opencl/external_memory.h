// Memory that an app made, as a tensor: the device reads and writes it in place.
#pragma once

#include <tvm/ffi/container/shape.h>
#include <tvm/runtime/tensor.h>

#include <optional>
#include <vector>

#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

// A dense tensor in an OpenCL buffer from `offset` bytes on, which is retained for as long as the
// tensor lives.  Throws Failure (bad argument) for an image, a buffer of another context, one that
// is too small, or an offset that the device does not take.
[[nodiscard]] tvm::runtime::Tensor tensor_in_buffer(DLDevice device, cl_mem buffer, uint64_t offset,
                                                    tvm::ffi::ShapeView shape, DLDataType dtype);

// A dense tensor in an AHardwareBuffer of the format BLOB, which must outlive the tensor.  Throws
// Failure: unsupported where the device or the system cannot do that, bad argument for another
// format or too few bytes.
[[nodiscard]] tvm::runtime::Tensor tensor_in_hardware_buffer(DLDevice device, void* buffer,
                                                             tvm::ffi::ShapeView shape,
                                                             DLDataType dtype);

// Hands memory of the app to a device for as long as commands use it, where its kind asks for that.
class HandedOver {
 public:
  // `tensors` are of one device; those that need no handing over are left out.
  HandedOver(DLDevice device, const std::vector<tvm::runtime::Tensor>& tensors);
  HandedOver(const HandedOver&) = delete;
  HandedOver& operator=(const HandedOver&) = delete;
  // Gives back what is left, as far as that can be had without an error.
  ~HandedOver();

  // Gives it back after the commands that were given so far; returns when that is done.
  void give_back();

 private:
  DLDevice device_;
  std::vector<cl_mem> memory_;
  std::optional<ExternalMemoryApi> functions_;
};

}  // namespace adrenoc_runtime::opencl
