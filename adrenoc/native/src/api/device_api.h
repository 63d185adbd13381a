// TVM's device interface for OpenCL.
#pragma once

#include <tvm/runtime/device_api.h>

#include "opencl/memory.h"

namespace adrenoc_runtime::opencl {

class OpenClDeviceApi final : public tvm::runtime::DeviceAPI {
 public:
  [[nodiscard]] static OpenClDeviceApi& global();

  void SetDevice(tvm::Device device) final;
  void GetAttr(tvm::Device device, tvm::runtime::DeviceAttrKind kind, tvm::ffi::Any* result) final;
  [[nodiscard]] size_t GetDataSize(const DLTensor& tensor,
                                   tvm::ffi::Optional<tvm::ffi::String> scope) final;

  // Both return a Descriptor.
  [[nodiscard]] void* AllocDataSpace(tvm::Device device, size_t bytes, size_t alignment,
                                     DLDataType type) final;
  [[nodiscard]] void* AllocDataSpace(tvm::Device device, int ndim, const int64_t* shape,
                                     DLDataType type,
                                     tvm::ffi::Optional<tvm::ffi::String> scope) final;
  void FreeDataSpace(tvm::Device device, void* data) final;

  void CopyDataFromTo(DLTensor* from, DLTensor* to, TVMStreamHandle stream) final;
  void StreamSync(tvm::Device device, TVMStreamHandle stream) final;
};

}  // namespace adrenoc_runtime::opencl
