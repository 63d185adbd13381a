// TVM's device interface for OpenCL, and the allocator that its virtual machine asks for storage.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/device_api.h>
#include <tvm/runtime/memory/memory_manager.h>

#include <atomic>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "base/typed_function.h"
#include "launch/copy.h"
#include "opencl/device.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::memory::AllocatorType;
using tvm::runtime::memory::Buffer;

// The scope of a buffer that images are made from; theirs goes on with ":OFFSET:PITCH:BANDS",
// in bytes, in texels, and of layers.
constexpr char kPoolScope[] = "global.pool";
constexpr TextureConvention kLayers = TextureConvention::kActivation;

bool device_exists(int device_id) {
  try {
    return device_id >= 0 && static_cast<size_t>(device_id) < all_devices().size();
  } catch (const ffi::Error&) {
    return false;  // without an OpenCL library there are no devices
  }
}

Descriptor* new_descriptor(tvm::Device device, const StorageSpec& spec,
                           std::optional<TextureConvention> convention = std::nullopt,
                           Descriptor::When when = Descriptor::When::kNow) {
  return new Descriptor(device_at(device.device_id).memory(), spec, convention, when);
}

// Nothing of what OpenCL cannot tell: registers, free memory.
ffi::Any attribute_of(const DeviceInfo& info, tvm::runtime::DeviceAttrKind kind) {
  const auto number = [](auto value) { return static_cast<int64_t>(value); };
  switch (kind) {
    case tvm::runtime::kMaxThreadsPerBlock: return number(info.max_work_group_size);
    case tvm::runtime::kWarpSize: return 1;  // OpenCL promises no lockstep between work-items
    case tvm::runtime::kMaxSharedMemoryPerBlock: return number(info.local_memory_bytes);
    case tvm::runtime::kComputeVersion: return ffi::String(info.version_number());
    case tvm::runtime::kDeviceName: return ffi::String(info.name);
    case tvm::runtime::kMaxClockRate: return number(info.clock_mhz) * 1000;  // in kHz
    case tvm::runtime::kMultiProcessorCount: return number(info.compute_units);
    case tvm::runtime::kMaxThreadDimensions: {
      const auto& sizes = info.max_work_item_sizes;
      const int64_t extents[] = {number(sizes[0]), number(sizes[1]), number(sizes[2])};
      return ffi::String(shape_text(extents, 3));
    }
    case tvm::runtime::kApiVersion: return number(info.c_version);
    case tvm::runtime::kDriverVersion: return ffi::String(info.driver);
    case tvm::runtime::kL2CacheSizeBytes: return number(info.global_cache_bytes);
    case tvm::runtime::kTotalGlobalMemory: return number(info.global_memory_bytes);
    case tvm::runtime::kImagePitchAlignment: return number(info.image_pitch_alignment);
    default: return nullptr;
  }
}

// What it allocates are Descriptors.
class OpenClDeviceApi final : public tvm::runtime::DeviceAPI {
 public:
  [[nodiscard]] static OpenClDeviceApi& global() {
    // TVM keeps the pointer until the process ends.
    static auto* instance = new OpenClDeviceApi();
    return *instance;
  }

  void SetDevice(tvm::Device device) final { set_current_device_id(device.device_id); }

  void GetAttr(tvm::Device device, tvm::runtime::DeviceAttrKind kind, ffi::Any* result) final {
    if (kind == tvm::runtime::kExist) {
      *result = static_cast<int>(device_exists(device.device_id));
    } else {
      *result = attribute_of(device_at(device.device_id).info(), kind);
    }
  }

  [[nodiscard]] size_t GetDataSize(const DLTensor& tensor, ffi::Optional<ffi::String> scope) final {
    const auto convention = texture_convention(scope.value_or(""));
    if (!convention.has_value()) return ffi::GetDataSize(tensor);
    const ImageExtent extent = image_extent(tensor.shape, tensor.ndim, *convention);
    return StorageSpec::image(extent, image_channel_type(tensor.dtype)).bytes;
  }

  [[nodiscard]] void* AllocDataSpace(tvm::Device device, size_t bytes, size_t, DLDataType) final {
    return new_descriptor(device, StorageSpec::buffer(bytes));
  }

  [[nodiscard]] void* AllocDataSpace(tvm::Device device, int ndim, const int64_t* shape,
                                     DLDataType type, ffi::Optional<ffi::String> scope) final {
    const auto convention = texture_convention(scope.value_or(""));
    if (convention.has_value()) {
      const ImageExtent extent = image_extent(shape, ndim, *convention);
      return new_descriptor(device, StorageSpec::image(extent, image_channel_type(type)),
                            convention);
    }
    int64_t elements = 1;
    for (int i = 0; i < ndim; ++i) elements *= shape[i];
    return AllocDataSpace(device, ffi::GetDataSize(static_cast<size_t>(elements), type), 0, type);
  }

  void FreeDataSpace(tvm::Device, void* data) final { delete static_cast<Descriptor*>(data); }

  void CopyDataFromTo(DLTensor* from, DLTensor* to, TVMStreamHandle) final {
    copy_tensor(*from, *to);
  }

  void StreamSync(tvm::Device device, TVMStreamHandle stream) final {
    if (stream != nullptr) TVM_FFI_THROW(ValueError) << "OpenCL has the default stream only";
    device_at(device.device_id).finish();
  }
};

// A texture inside one host function: alloc_nd(device type, device id, type code, type bits,
// scope, 3, [width, height, layers], bits of a texel).
void* allocate_texture(ffi::PackedArgs args) {
  const tvm::Device device{static_cast<DLDeviceType>(args[0].cast<int>()), args[1].cast<int>()};
  const auto* shape = static_cast<const int64_t*>(args[6].cast<void*>());
  const ImageExtent extent{static_cast<size_t>(shape[0]), static_cast<size_t>(shape[1]),
                           static_cast<size_t>(shape[2])};
  const cl_uint type = args[7].cast<int64_t>() == 64 ? CL_HALF_FLOAT : CL_FLOAT;
  return new_descriptor(device, StorageSpec::image(extent, type), kLayers);
}

// The place that a scope names; nothing for other scopes.
std::optional<ImagePlace> place_of(const std::string& scope) {
  ImagePlace place;
  const std::string form = std::string(kPoolScope) + ":%zu:%zu:%zu%n";
  int end = 0;
  const int read = std::sscanf(scope.c_str(), form.c_str(), &place.offset_bytes,
                               &place.pitch_texels, &place.bands, &end);
  if (read != 3 || static_cast<size_t>(end) != scope.size()) return std::nullopt;
  return place;
}

// Adds nothing to the device's memory pool but the book-keeping that TVM wants: the pool already
// reuses what is freed, so "naive" and "pooled" allocators are the same.
class OpenClAllocator final : public tvm::runtime::memory::Allocator {
 public:
  explicit OpenClAllocator(AllocatorType type) : Allocator(type) {}

  Buffer Alloc(tvm::Device device, size_t bytes, size_t, DLDataType) final {
    return made(device, bytes, at_first_use(device, StorageSpec::buffer(bytes)));
  }

  Buffer Alloc(tvm::Device device, ffi::Shape shape, DLDataType type,
               const std::string& scope) final {
    const size_t bytes = ffi::GetDataSize(static_cast<size_t>(shape.Product()), type);
    if (scope == kPoolScope) {
      return made(device, bytes, at_first_use(device, StorageSpec::pool(bytes)));
    }
    // TVM's own planner gives the size of a storage in bytes, even when textures will lie in it.
    if (shape.size() <= 1 || !texture_convention(scope).has_value()) {
      return Alloc(device, bytes, 0, type);
    }
    return made(device, bytes,
                OpenClDeviceApi::global().AllocDataSpace(device, static_cast<int>(shape.size()),
                                                         shape.data(), type, ffi::String(scope)));
  }

  // A tensor in a storage that was planned for several tensors, of which one is alive at a time.
  // In the storage of an image these are tensors of its own width, height and format, with as
  // many layers or fewer.  In a storage of bytes a texture has no place, so it gets an image of
  // its own: the pool then does the sharing that the plan had in mind.  So it does for an image of
  // a part of a buffer that the device cannot make.
  void* CreateView(const Buffer& buffer, ffi::Shape shape, DLDataType type,
                   const std::string& scope) final {
    const auto* whole = static_cast<const Descriptor*>(buffer.data);
    const auto place = place_of(scope);
    const auto convention = place.has_value() ? kLayers : texture_convention(scope);
    if (!convention.has_value()) {
      TVM_FFI_THROW(ValueError) << "A view of " << whole->spec().one()
                                << " can only be a texture, but got scope \"" << scope << '"';
    }
    const ImageExtent extent =
        image_extent(shape.data(), static_cast<int>(shape.size()), *convention);
    const cl_uint channel_type = image_channel_type(type);
    if (place.has_value()) return placed(buffer.device, *whole, *place, extent, channel_type);
    const StorageSpec spec = StorageSpec::image(extent, channel_type);
    if (!whole->is_image()) return new_descriptor(buffer.device, spec, convention);
    check_image_view(whole->spec(), spec);
    return new Descriptor(*whole, *convention);
  }

  void FreeView(tvm::Device, void* data) final { delete static_cast<Descriptor*>(data); }

  void Free(const Buffer& buffer) final {
    used_bytes_ -= buffer.size;
    OpenClDeviceApi::global().FreeDataSpace(buffer.device, buffer.data);
  }

  // Clears the pool of every device in use: TVM does not say which one it means.
  void Clear() final { release_all_pools(); }

  [[nodiscard]] size_t UsedMemory() const final { return used_bytes_; }

 protected:
  [[nodiscard]] bool AllowMemoryScope(const std::string&) const final { return true; }

 private:
  static Descriptor* placed(tvm::Device device, const Descriptor& whole, const ImagePlace& place,
                            const ImageExtent& extent, cl_uint channel_type) {
    if (place.bands == 0 || extent.layers % place.bands != 0) {
      TVM_FFI_THROW(ValueError) << extent.layers << " layers cannot lie in " << place.bands
                                << " bands";
    }
    MemoryPool& memory = device_at(device.device_id).memory();
    const StorageSpec spec = StorageSpec::beside(extent, place.bands, channel_type);
    if (memory.can_place(spec, place)) {
      auto storage = memory.place(whole.storage(), spec, place);
      if (storage != nullptr) return new Descriptor(std::move(storage), kLayers);
    }
    return new_descriptor(device, spec, kLayers);
  }

  Buffer made(tvm::Device device, size_t bytes, void* data) {
    used_bytes_ += bytes;
    Buffer buffer;
    buffer.data = data;
    buffer.size = bytes;
    buffer.device = device;
    buffer.alloc_type = type();
    return buffer;
  }

  static void* at_first_use(tvm::Device device, const StorageSpec& spec) {
    return new_descriptor(device, spec, std::nullopt, Descriptor::When::kAtFirstUse);
  }

  static void check_image_view(const StorageSpec& whole, const StorageSpec& view) {
    if (view.extent.width != whole.extent.width || view.extent.height != whole.extent.height ||
        view.extent.layers > whole.extent.layers || view.channel_type != whole.channel_type) {
      TVM_FFI_THROW(ValueError) << view.one() << " cannot share the memory of " << whole.one()
                                << ": width, height and format must be the same, and the layers "
                                   "no more";
    }
  }

  std::atomic<size_t> used_bytes_{0};
};

// image_in_pool(storage, shape, dtype, offset in bytes, pitch in texels, bands of layers): a tensor
// in an image that is made from a part of a buffer; where the device cannot make it, in an image of
// its own.
tvm::runtime::Tensor image_in_pool(tvm::runtime::memory::Storage storage, ffi::Shape shape,
                                   DLDataType dtype, int64_t offset, int64_t pitch, int64_t bands) {
  const std::string scope = std::string(kPoolScope) + ":" + std::to_string(offset) + ":" +
                            std::to_string(pitch) + ":" + std::to_string(bands);
  return storage->AllocTensorScoped(0, std::move(shape), dtype, ffi::String(scope));
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  publish("adrenoc.opencl.image_in_pool", image_in_pool);
  publish_packed("DeviceAllocator.opencl", [](ffi::PackedArgs args, ffi::Any* result) {
    tvm::runtime::memory::Allocator* allocator =
        new OpenClAllocator(static_cast<AllocatorType>(args[1].cast<int>()));
    *result = static_cast<void*>(allocator);
  });
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
