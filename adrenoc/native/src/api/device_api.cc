#include "api/device_api.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include "base/typed_function.h"
#include "launch/copy.h"
#include "opencl/device.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;

bool device_exists(int device_id) {
  try {
    return device_id >= 0 && static_cast<size_t>(device_id) < all_devices().size();
  } catch (const ffi::Error&) {
    return false;  // without an OpenCL library there are no devices
  }
}

void* new_descriptor(tvm::Device device, const StorageSpec& spec,
                     std::optional<TextureConvention> convention) {
  return new Descriptor(device_at(device.device_id).memory(), spec, convention,
                        Descriptor::When::kNow);
}

std::string work_item_sizes_text(const DeviceInfo& info) {
  const auto& sizes = info.max_work_item_sizes;
  return "[" + std::to_string(sizes[0]) + ", " + std::to_string(sizes[1]) + ", " +
         std::to_string(sizes[2]) + "]";
}

// Nothing of what OpenCL cannot tell: registers, free memory.
ffi::Any attribute_of(const DeviceInfo& info, tvm::runtime::DeviceAttrKind kind) {
  const auto number = [](auto value) { return static_cast<int64_t>(value); };
  switch (kind) {
    case tvm::runtime::kMaxThreadsPerBlock:
      return number(info.max_work_group_size);
    case tvm::runtime::kWarpSize:
      return 1;  // OpenCL promises no lockstep between work-items
    case tvm::runtime::kMaxSharedMemoryPerBlock:
      return number(info.local_memory_bytes);
    case tvm::runtime::kComputeVersion:
      return ffi::String(info.version_number());
    case tvm::runtime::kDeviceName:
      return ffi::String(info.name);
    case tvm::runtime::kMaxClockRate:
      return number(info.clock_mhz) * 1000;  // in kHz
    case tvm::runtime::kMultiProcessorCount:
      return number(info.compute_units);
    case tvm::runtime::kMaxThreadDimensions:
      return ffi::String(work_item_sizes_text(info));
    case tvm::runtime::kApiVersion:
      return number(info.c_version);
    case tvm::runtime::kDriverVersion:
      return ffi::String(info.driver);
    case tvm::runtime::kL2CacheSizeBytes:
      return number(info.global_cache_bytes);
    case tvm::runtime::kTotalGlobalMemory:
      return number(info.global_memory_bytes);
    case tvm::runtime::kImagePitchAlignment:
      return number(info.image_pitch_alignment);
    default:
      return nullptr;
  }
}

// A texture inside one host function: alloc_nd(device type, device id, type code, type bits,
// scope, 3, [width, height, layers], bits of a texel).
void* allocate_texture(ffi::PackedArgs args) {
  const tvm::Device device{static_cast<DLDeviceType>(args[0].cast<int>()), args[1].cast<int>()};
  const auto* shape = static_cast<const int64_t*>(args[6].cast<void*>());
  const ImageExtent extent{static_cast<size_t>(shape[0]), static_cast<size_t>(shape[1]),
                           static_cast<size_t>(shape[2])};
  const cl_uint type = args[7].cast<int64_t>() == 64 ? CL_HALF_FLOAT : CL_FLOAT;
  return new_descriptor(device, StorageSpec::image(extent, type), TextureConvention::kActivation);
}

}  // namespace

OpenClDeviceApi& OpenClDeviceApi::global() {
  // TVM keeps the pointer until the process ends.
  static auto* instance = new OpenClDeviceApi();
  return *instance;
}

void OpenClDeviceApi::SetDevice(tvm::Device device) { set_current_device_id(device.device_id); }

void OpenClDeviceApi::GetAttr(tvm::Device device, tvm::runtime::DeviceAttrKind kind,
                              ffi::Any* result) {
  if (kind == tvm::runtime::kExist) {
    *result = static_cast<int>(device_exists(device.device_id));
    return;
  }
  *result = attribute_of(device_at(device.device_id).info(), kind);
}

size_t OpenClDeviceApi::GetDataSize(const DLTensor& tensor, ffi::Optional<ffi::String> scope) {
  const auto convention = texture_convention(scope.value_or(""));
  if (!convention.has_value()) return ffi::GetDataSize(tensor);
  return StorageSpec::image(image_extent(tensor.shape, tensor.ndim, *convention),
                            image_channel_type(tensor.dtype))
      .bytes;
}

void* OpenClDeviceApi::AllocDataSpace(tvm::Device device, size_t bytes, size_t, DLDataType) {
  return new_descriptor(device, StorageSpec::buffer(bytes), std::nullopt);
}

void* OpenClDeviceApi::AllocDataSpace(tvm::Device device, int ndim, const int64_t* shape,
                                      DLDataType type, ffi::Optional<ffi::String> scope) {
  const auto convention = texture_convention(scope.value_or(""));
  if (convention.has_value()) {
    const ImageExtent extent = image_extent(shape, ndim, *convention);
    return new_descriptor(device, StorageSpec::image(extent, image_channel_type(type)), convention);
  }
  int64_t elements = 1;
  for (int i = 0; i < ndim; ++i) elements *= shape[i];
  return AllocDataSpace(device, ffi::GetDataSize(static_cast<size_t>(elements), type), 0, type);
}

void OpenClDeviceApi::FreeDataSpace(tvm::Device, void* data) {
  delete static_cast<Descriptor*>(data);
}

void OpenClDeviceApi::CopyDataFromTo(DLTensor* from, DLTensor* to, TVMStreamHandle) {
  copy_tensor(*from, *to);
}

void OpenClDeviceApi::StreamSync(tvm::Device device, TVMStreamHandle stream) {
  if (stream != nullptr) {
    TVM_FFI_THROW(ValueError) << "OpenCL has the default stream only";
  }
  device_at(device.device_id).finish();
}

TVM_FFI_STATIC_INIT_BLOCK() {
  publish_packed("device_api.opencl", [](ffi::PackedArgs, ffi::Any* result) {
    tvm::runtime::DeviceAPI* device_api = &OpenClDeviceApi::global();
    *result = static_cast<void*>(device_api);
  });
  publish_packed("device_api.opencl.alloc_nd",
                 [](ffi::PackedArgs args, ffi::Any* result) { *result = allocate_texture(args); });
  publish_packed("device_api.opencl.free_nd", [](ffi::PackedArgs args, ffi::Any* result) {
    delete static_cast<Descriptor*>(args[3].cast<void*>());
    *result = 0;
  });
}

}  // namespace adrenoc_runtime::opencl
