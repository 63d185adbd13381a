// Device memory: buffers and images behind one descriptor, kept for reuse when they are freed.
#pragma once

#include <tvm/ffi/dtype.h>
#include <tvm/ffi/extra/json.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "opencl/cl_api.h"
#include "opencl/cl_types.h"
#include "opencl/device_info.h"

namespace adrenoc_runtime::opencl {

// In texels; an image is always an array, if only of one layer.
struct ImageExtent {
  size_t width = 0;
  size_t height = 0;
  size_t layers = 0;

  [[nodiscard]] size_t texels() const { return width * height * layers; }
  [[nodiscard]] bool operator==(const ImageExtent& other) const {
    return width == other.width && height == other.height && layers == other.layers;
  }
};

// Which axes of [a0, ..., an, 4] become layers, rows and columns.  The lowering in TVM's
// TextureFlatten pass decides this by the memory scope, and memory must agree with the kernels.
enum class TextureConvention {
  kActivation,  // "global.texture":        layers = a0 * .. * an-2, height = an-1, width = an
  kWeight,      // "global.texture-weight": one layer, height = a0, width = a1 * .. * an
  kNhwc,        // "global.texture-nhwc":   layers = a0, height = a1, width = a2 * .. * an
};

// The convention of a memory scope; nothing for plain memory ("", "global").
// Throws ValueError for a scope that the device does not have.
[[nodiscard]] std::optional<TextureConvention> texture_convention(const std::string& scope);

// Throws ValueError unless the shape has at least three axes, the last of them 4, all positive.
[[nodiscard]] ImageExtent image_extent(const int64_t* shape, int ndim,
                                       TextureConvention convention);

// CL_HALF_FLOAT or CL_FLOAT; throws ValueError for any other element type.
[[nodiscard]] cl_uint image_channel_type(DLDataType dtype);

// Bytes of one RGBA texel.
[[nodiscard]] size_t texel_bytes(cl_uint channel_type);

// "[1, 8, 8, 4]".
[[nodiscard]] std::string shape_text(const int64_t* shape, int ndim);

// What kind of memory: a buffer of `bytes`, or an image of `extent` whose texels take `bytes`.
struct StorageSpec {
  size_t bytes = 0;
  ImageExtent extent;
  cl_uint channel_type = 0;  // 0 for a buffer
  bool is_array = true;      // an image with layers, if only one
  bool is_exact = false;     // a buffer of no more bytes than were asked for

  [[nodiscard]] bool is_image() const { return channel_type != 0; }
  [[nodiscard]] bool operator<(const StorageSpec& other) const { return key() < other.key(); }
  // "buffer of 64 bytes", "image of 4 x 5 texels in 2 layers (640 bytes)".
  [[nodiscard]] std::string text() const;
  // "a buffer of 8 bytes", "an image of ...".
  [[nodiscard]] std::string one() const;

  [[nodiscard]] static StorageSpec buffer(size_t bytes);
  [[nodiscard]] static StorageSpec image(const ImageExtent& extent, cl_uint channel_type);
  // A buffer that images are made from.
  [[nodiscard]] static StorageSpec pool(size_t bytes);
  // An image without layers, in which those of `extent` stand beside each other.
  [[nodiscard]] static StorageSpec beside(const ImageExtent& extent, size_t bands,
                                          cl_uint channel_type);

 private:
  [[nodiscard]] std::tuple<size_t, size_t, size_t, size_t, cl_uint, bool, bool> key() const {
    return {bytes, extent.width, extent.height, extent.layers, channel_type, is_array, is_exact};
  }
};

// Where an image lies in a buffer.
struct ImagePlace {
  size_t offset_bytes = 0;
  size_t pitch_texels = 0;
  size_t bands = 1;  // below each other, each with as many of its layers beside each other
};

[[nodiscard]] uint64_t new_storage_number();

// One OpenCL memory object.  Its number is no other's, while handles of released objects come
// again.
struct Storage {
  StorageSpec spec;
  MemHandle mem;
  // Memory of an app that commands may use only between an acquire and a release.
  bool is_handed_over = false;
  uint64_t number = new_storage_number();

  // An image that is made from a part of this buffer; it is kept, so that the next run has it too.
  struct Part {
    MemHandle buffer;
    MemHandle image;
    uint64_t number = new_storage_number();
  };
  std::map<std::tuple<StorageSpec, size_t, size_t>, Part> parts{};  // by offset and pitch
  std::shared_ptr<Storage> whole{};                                 // of a part
};

// Of memory objects: in use, and waiting in pools to be used again.
struct HeldBytes {
  uint64_t used = 0;
  uint64_t pooled = 0;

  [[nodiscard]] uint64_t total() const { return used + pooled; }
};

// The memory of one device.  What is freed waits in a pool for a request of the same kind: an
// image of the same extents and format, or a buffer of the same size class.  The device's queue
// is in order, so memory may be handed out again while kernels that use it are still under way.
class MemoryPool {
 public:
  MemoryPool(cl_context context, const DeviceInfo& info);

  // Throws ValueError when the device can never hold it, MemoryError when it is full now.
  [[nodiscard]] std::shared_ptr<Storage> allocate(const StorageSpec& spec);

  // Whether the device says that it makes such an image from a part of a buffer.
  [[nodiscard]] bool can_place(const StorageSpec& image, const ImagePlace& place) const;

  // The image that is made from a part of a buffer, or null where the driver refuses.
  [[nodiscard]] std::shared_ptr<Storage> place(const std::shared_ptr<Storage>& whole,
                                               const StorageSpec& image, const ImagePlace& place);

  // Gives back what waits in the pool, and starts the peak anew from what is in use.
  void release_pool();

  // In use now.
  [[nodiscard]] size_t allocated_bytes();
  [[nodiscard]] HeldBytes held_bytes();

  // allocated_bytes: in use now.  pooled_bytes: waiting for reuse.  peak_bytes: the most that
  // both together have ever been.  images, buffers: in use now.
  [[nodiscard]] tvm::ffi::json::Object stats();

 private:
  void check_limits(const StorageSpec& spec) const;
  [[nodiscard]] std::unique_ptr<Storage> create(const StorageSpec& spec, cl_int* code) const;
  [[nodiscard]] std::unique_ptr<Storage> take_pooled(const StorageSpec& spec);
  void recycle(std::unique_ptr<Storage> storage);
  void clear_locked();

  const cl_context context_;
  const DeviceInfo& info_;
  std::mutex mutex_;
  std::map<StorageSpec, std::vector<std::unique_ptr<Storage>>> free_;
  size_t allocated_bytes_ = 0;
  size_t pooled_bytes_ = 0;
  size_t peak_bytes_ = 0;
  int64_t images_ = 0;
  int64_t buffers_ = 0;
  int64_t reuses_ = 0;
};

// What the data pointer of a TVM tensor points to.  Several descriptors can share a storage:
// views.  The alignment is the one that TVM promises for data pointers.
class alignas(64) Descriptor {
 public:
  // Memory of its own, taken from the pool now, or only when it is first used.
  enum class When { kNow, kAtFirstUse };
  Descriptor(MemoryPool& pool, const StorageSpec& spec, std::optional<TextureConvention> convention,
             When when);

  // Memory that is there already; it goes when nobody holds the storage any more.
  explicit Descriptor(std::shared_ptr<Storage> storage,
                      std::optional<TextureConvention> convention = std::nullopt);

  // A view: the memory of another descriptor, perhaps mapped by another convention.
  Descriptor(const Descriptor& whole, TextureConvention convention);

  [[nodiscard]] const StorageSpec& spec() const { return spec_; }
  [[nodiscard]] bool is_image() const { return spec_.is_image(); }
  // How a tensor's axes map to the image; nothing for a buffer.
  [[nodiscard]] std::optional<TextureConvention> convention() const { return convention_; }
  [[nodiscard]] cl_mem mem() const { return storage()->mem.get(); }
  // Its memory, which is taken now if it was to be taken at the first use.
  [[nodiscard]] const std::shared_ptr<Storage>& storage() const;

 private:
  MemoryPool* const pool_;  // null where the storage was given
  const StorageSpec spec_;
  const std::optional<TextureConvention> convention_;
  mutable std::once_flag allocated_;
  mutable std::shared_ptr<Storage> storage_;
};

}  // namespace adrenoc_runtime::opencl
