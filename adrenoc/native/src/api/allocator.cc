// The allocator that TVM's virtual machine asks for storage on an OpenCL device.
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/memory/memory_manager.h>

#include <atomic>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "api/device_api.h"
#include "base/typed_function.h"
#include "opencl/device.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::memory::AllocatorType;
using tvm::runtime::memory::Buffer;

// The scope of a buffer that images are made from; theirs goes on with ":OFFSET:PITCH:BANDS",
// in bytes, in texels, and of layers.
constexpr char kPoolScope[] = "global.pool";

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
    return made(device, bytes, bytes_in_advance(device, bytes));
  }

  Buffer Alloc(tvm::Device device, ffi::Shape shape, DLDataType type,
               const std::string& scope) final {
    const size_t bytes = ffi::GetDataSize(static_cast<size_t>(shape.Product()), type);
    if (scope == kPoolScope) {
      return made(device, bytes,
                  new Descriptor(device_at(device.device_id).memory(), StorageSpec::pool(bytes),
                                 std::nullopt, Descriptor::When::kAtFirstUse));
    }
    // TVM's own planner gives the size of a storage in bytes, even when textures will lie in it.
    if (shape.size() <= 1 || !texture_convention(scope).has_value()) {
      return made(device, bytes, bytes_in_advance(device, bytes));
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
    if (const auto place = place_of(scope)) {
      return placed(device_at(buffer.device.device_id).memory(), *whole, *place,
                    image_extent(shape.data(), static_cast<int>(shape.size()), kLayers),
                    image_channel_type(type));
    }
    const auto convention = texture_convention(scope);
    if (!convention.has_value()) {
      TVM_FFI_THROW(ValueError) << "A view of " << whole->spec().one()
                                << " can only be a texture, but got scope \"" << scope << '"';
    }
    const ImageExtent extent =
        image_extent(shape.data(), static_cast<int>(shape.size()), *convention);
    const StorageSpec spec = StorageSpec::image(extent, image_channel_type(type));
    if (!whole->is_image()) {
      return new Descriptor(device_at(buffer.device.device_id).memory(), spec, convention,
                            Descriptor::When::kNow);
    }
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
  static constexpr TextureConvention kLayers = TextureConvention::kActivation;

  static Descriptor* placed(MemoryPool& memory, const Descriptor& whole, const ImagePlace& place,
                            const ImageExtent& extent, cl_uint channel_type) {
    if (place.bands == 0 || extent.layers % place.bands != 0) {
      TVM_FFI_THROW(ValueError) << extent.layers << " layers cannot lie in " << place.bands
                                << " bands";
    }
    const StorageSpec spec = StorageSpec::beside(extent, place.bands, channel_type);
    if (memory.can_place(spec, place)) {
      auto storage = memory.place(whole.storage(), spec, place);
      if (storage != nullptr) return new Descriptor(std::move(storage), kLayers);
    }
    return new Descriptor(memory, spec, kLayers, Descriptor::When::kNow);
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

  static void* bytes_in_advance(tvm::Device device, size_t bytes) {
    return new Descriptor(device_at(device.device_id).memory(), StorageSpec::buffer(bytes),
                          std::nullopt, Descriptor::When::kAtFirstUse);
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

}  // namespace

// image_in_pool(storage, shape, dtype, offset in bytes, pitch in texels, bands of layers): a tensor
// in an image that is made from a part of a buffer; where the device cannot make it, in an image of
// its own.
tvm::runtime::Tensor image_in_pool(tvm::runtime::memory::Storage storage, ffi::Shape shape,
                                   DLDataType dtype, int64_t offset, int64_t pitch, int64_t bands) {
  const std::string scope = std::string(kPoolScope) + ":" + std::to_string(offset) + ":" +
                            std::to_string(pitch) + ":" + std::to_string(bands);
  return storage->AllocTensorScoped(0, std::move(shape), dtype, ffi::String(scope));
}

TVM_FFI_STATIC_INIT_BLOCK() {
  publish("adrenoc.opencl.image_in_pool", image_in_pool);
  publish_packed("DeviceAllocator.opencl", [](ffi::PackedArgs args, ffi::Any* result) {
    tvm::runtime::memory::Allocator* allocator =
        new OpenClAllocator(static_cast<AllocatorType>(args[1].cast<int>()));
    *result = static_cast<void*>(allocator);
  });
}

}  // namespace adrenoc_runtime::opencl
