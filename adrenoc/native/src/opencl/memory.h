// Device memory: buffers and images behind one descriptor, kept for reuse when they are freed.
#pragma once

#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
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
[[nodiscard]] inline std::optional<TextureConvention> texture_convention(const std::string& scope) {
  if (scope.empty() || scope == "global") return std::nullopt;
  if (scope == "global.texture" || scope == "texture") return TextureConvention::kActivation;
  if (scope == "global.texture-weight") return TextureConvention::kWeight;
  if (scope == "global.texture-nhwc") return TextureConvention::kNhwc;
  TVM_FFI_THROW(ValueError) << "OpenCL memory has no scope \"" << scope
                            << "\"; expected global, global.texture, global.texture-weight or "
                               "global.texture-nhwc";
  TVM_FFI_UNREACHABLE();
}

// "[1, 8, 8, 4]".
[[nodiscard]] inline std::string shape_text(const int64_t* shape, int ndim) {
  std::string text = "[";
  for (int i = 0; i < ndim; ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// Throws ValueError unless the shape has at least three axes, the last of them 4, all positive.
[[nodiscard]] inline ImageExtent image_extent(const int64_t* shape, int ndim,
                                              TextureConvention convention) {
  if (ndim < 3 || shape[ndim - 1] != 4) {
    TVM_FFI_THROW(ValueError) << "A texture tensor has a shape of [..., rows, columns, 4], but got "
                              << shape_text(shape, ndim);
  }
  const int axes = ndim - 1;
  // The axis that becomes the rows; those before it are layers, those after it columns.
  int row_axis = axes - 2;
  if (convention == TextureConvention::kWeight) row_axis = 0;
  if (convention == TextureConvention::kNhwc) row_axis = axes < 3 ? 0 : 1;
  ImageExtent extent{1, 1, 1};
  for (int axis = 0; axis < axes; ++axis) {
    if (shape[axis] <= 0) {
      TVM_FFI_THROW(ValueError) << "A texture tensor has extents of at least 1, but got "
                                << shape_text(shape, ndim);
    }
    size_t* target =
        axis < row_axis ? &extent.layers : (axis == row_axis ? &extent.height : &extent.width);
    *target *= static_cast<size_t>(shape[axis]);
  }
  return extent;
}

// CL_HALF_FLOAT or CL_FLOAT; throws ValueError for any other element type.
[[nodiscard]] inline cl_uint image_channel_type(DLDataType dtype) {
  if (dtype.code == kDLFloat && dtype.lanes == 1) {
    if (dtype.bits == 16) return CL_HALF_FLOAT;
    if (dtype.bits == 32) return CL_FLOAT;
  }
  TVM_FFI_THROW(ValueError) << "A texture holds float16 or float32, but got "
                            << tvm::ffi::DLDataTypeToString(dtype);
  TVM_FFI_UNREACHABLE();
}

// Bytes of one RGBA texel.
[[nodiscard]] inline size_t texel_bytes(cl_uint channel_type) {
  return channel_type == CL_HALF_FLOAT ? 8 : 16;
}

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
  [[nodiscard]] std::string text() const {
    const std::string size = std::to_string(bytes) + " bytes";
    if (!is_image()) return "buffer of " + size;
    return "image of " + std::to_string(extent.width) + " x " + std::to_string(extent.height) +
           " texels in " + std::to_string(extent.layers) + " layers (" + size + ")";
  }
  // "a buffer of 8 bytes", "an image of ...".
  [[nodiscard]] std::string one() const { return (is_image() ? "an " : "a ") + text(); }

  [[nodiscard]] static StorageSpec buffer(size_t bytes) {
    StorageSpec spec;
    spec.bytes = bytes;
    return spec;
  }
  [[nodiscard]] static StorageSpec image(const ImageExtent& extent, cl_uint channel_type) {
    StorageSpec spec;
    spec.extent = extent;
    spec.channel_type = channel_type;
    spec.bytes = extent.texels() * texel_bytes(channel_type);
    return spec;
  }
  // A buffer that images are made from.
  [[nodiscard]] static StorageSpec pool(size_t bytes) {
    StorageSpec spec = buffer(bytes);
    spec.is_exact = true;
    return spec;
  }
  // An image without layers, in which those of `extent` stand beside each other.
  [[nodiscard]] static StorageSpec beside(const ImageExtent& extent, size_t bands,
                                          cl_uint channel_type) {
    StorageSpec spec =
        image({extent.width * (extent.layers / bands), extent.height * bands, 1}, channel_type);
    spec.is_array = false;
    return spec;
  }

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

[[nodiscard]] inline uint64_t new_storage_number() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

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

// A pool that waits for reuse may hold this part of the device's memory at most.
constexpr size_t kPoolShare = 4;

// Sizes in eighths of a power of two: at most an eighth of a buffer is wasted, and buffers of
// nearly the same size can stand in for each other.
inline size_t size_class(size_t bytes) {
  size_t step = 256;
  while (step * 16 <= bytes) step *= 2;
  return std::max(step, (bytes + step - 1) / step * step);
}

// The memory of one device.  What is freed waits in a pool for a request of the same kind: an
// image of the same extents and format, or a buffer of the same size class.  The device's queue
// is in order, so memory may be handed out again while kernels that use it are still under way.
class MemoryPool {
 public:
  MemoryPool(cl_context context, const DeviceInfo& info) : context_(context), info_(info) {}

  // Throws ValueError when the device can never hold it, MemoryError when it is full now.
  [[nodiscard]] std::shared_ptr<Storage> allocate(const StorageSpec& request) {
    StorageSpec spec = request;
    check_limits(spec);
    // Rounding up must not turn a request that the device can serve into one that it cannot.
    if (!spec.is_image() && !spec.is_exact) {
      spec.bytes = std::min<size_t>(size_class(spec.bytes), info_.max_allocation_bytes);
    }

    std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<Storage> storage = take_pooled(spec);
    if (storage == nullptr) {
      cl_int code = CL_SUCCESS;
      storage = create(spec, &code);
      if (storage == nullptr && is_out_of_memory(code)) {
        clear_locked();
        storage = create(spec, &code);
      }
      if (storage == nullptr) {
        const char* call = spec.is_image() ? "clCreateImage" : "clCreateBuffer";
        if (!is_out_of_memory(code)) {
          TVM_FFI_THROW(RuntimeError) << call << " failed with " << error_name(code) << " for "
                                      << spec.one() << " on " << info_.name;
        }
        TVM_FFI_THROW(MemoryError)
            << call << " failed with " << error_name(code) << ": no room for " << spec.one()
            << " on " << info_.name << ", where " << allocated_bytes_
            << " bytes are in use by this process";
      }
    }
    allocated_bytes_ += spec.bytes;
    peak_bytes_ = std::max(peak_bytes_, allocated_bytes_ + pooled_bytes_);
    ++(spec.is_image() ? images_ : buffers_);
    // The pool belongs to a device, and devices live as long as the process.
    return {storage.release(),
            [this](Storage* freed) { recycle(std::unique_ptr<Storage>(freed)); }};
  }

  // Whether the device says that it makes such an image from a part of a buffer.
  [[nodiscard]] bool can_place(const StorageSpec& image, const ImagePlace& place) const {
    const size_t texel = texel_bytes(image.channel_type);
    const size_t base = std::max<size_t>(info_.image_base_alignment, 1) * texel;
    return info_.has_extension("cl_khr_image2d_from_buffer") && info_.image_pitch_alignment > 0 &&
           place.pitch_texels % info_.image_pitch_alignment == 0 &&
           place.offset_bytes % base == 0 && info_.part_alignment_bytes > 0 &&
           place.offset_bytes % info_.part_alignment_bytes == 0;
  }

  // The image that is made from a part of a buffer, or null where the driver refuses.
  [[nodiscard]] std::shared_ptr<Storage> place(const std::shared_ptr<Storage>& whole,
                                               const StorageSpec& image, const ImagePlace& place) {
    std::lock_guard<std::mutex> lock(mutex_);
    Storage::Part& part = whole->parts[{image, place.offset_bytes, place.pitch_texels}];
    if (!part.image) {
      const size_t texel = texel_bytes(image.channel_type);
      const cl_buffer_region region = {place.offset_bytes,
                                       image.extent.height * place.pitch_texels * texel};
      cl_int code = CL_SUCCESS;
      part.buffer = MemHandle(api().clCreateSubBuffer(
          whole->mem.get(), CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code));
      if (code != CL_SUCCESS) return nullptr;
      const cl_image_format format = {CL_RGBA, image.channel_type};
      cl_image_desc description = {};
      description.image_type = CL_MEM_OBJECT_IMAGE2D;
      description.image_width = image.extent.width;
      description.image_height = image.extent.height;
      description.image_row_pitch = place.pitch_texels * texel;
      description.mem_object = part.buffer.get();
      part.image = MemHandle(
          api().clCreateImage(context_, CL_MEM_READ_WRITE, &format, &description, nullptr, &code));
      if (code != CL_SUCCESS) return nullptr;
    }
    ADRENOC_CL_CALL(clRetainMemObject, part.image.get());
    auto storage = std::make_shared<Storage>();
    storage->spec = image;
    storage->mem = MemHandle(part.image.get());
    storage->number = part.number;
    storage->whole = whole;
    return storage;
  }

  // Gives back what waits in the pool, and starts the peak anew from what is in use.
  void release_pool() {
    std::lock_guard<std::mutex> lock(mutex_);
    clear_locked();
    peak_bytes_ = allocated_bytes_;
  }

  // In use now.
  [[nodiscard]] HeldBytes held_bytes() {
    std::lock_guard<std::mutex> lock(mutex_);
    return {allocated_bytes_, pooled_bytes_};
  }

  // allocated_bytes: in use now.  pooled_bytes: waiting for reuse.  peak_bytes: the most that
  // both together have ever been.  images, buffers: in use now.
  [[nodiscard]] tvm::ffi::json::Object stats() {
    std::lock_guard<std::mutex> lock(mutex_);
    tvm::ffi::json::Object stats;
    stats.Set("allocated_bytes", static_cast<int64_t>(allocated_bytes_));
    stats.Set("peak_bytes", static_cast<int64_t>(peak_bytes_));
    stats.Set("pooled_bytes", static_cast<int64_t>(pooled_bytes_));
    stats.Set("images", images_);
    stats.Set("buffers", buffers_);
    stats.Set("reuses", reuses_);
    return stats;
  }

 private:
  void check_limits(const StorageSpec& spec) const {
    if (spec.is_image()) {
      if (!info_.has_images) {
        TVM_FFI_THROW(ValueError) << info_.name << " has no images: cannot allocate " << spec.one();
      }
      if (spec.extent.width > info_.image_max_width ||
          spec.extent.height > info_.image_max_height ||
          spec.extent.layers > info_.image_max_layers) {
        TVM_FFI_THROW(ValueError) << spec.one() << " is beyond the limits of " << info_.name << ": "
                                  << info_.image_max_width << " x " << info_.image_max_height
                                  << " texels in " << info_.image_max_layers << " layers";
      }
    }
    if (spec.bytes > info_.max_allocation_bytes) {
      TVM_FFI_THROW(ValueError) << "A single " << spec.text() << " is beyond the limit of "
                                << info_.name << ": " << info_.max_allocation_bytes << " bytes";
    }
  }
  [[nodiscard]] std::unique_ptr<Storage> create(const StorageSpec& spec, cl_int* code) const {
    cl_mem mem = nullptr;
    if (spec.is_image()) {
      const cl_image_format format = {CL_RGBA, spec.channel_type};
      cl_image_desc description = {};
      description.image_type = spec.is_array ? CL_MEM_OBJECT_IMAGE2D_ARRAY : CL_MEM_OBJECT_IMAGE2D;
      description.image_width = spec.extent.width;
      description.image_height = spec.extent.height;
      if (spec.is_array) description.image_array_size = spec.extent.layers;
      mem = api().clCreateImage(context_, CL_MEM_READ_WRITE, &format, &description, nullptr, code);
    } else {
      mem = api().clCreateBuffer(context_, CL_MEM_READ_WRITE, spec.bytes, nullptr, code);
    }
    if (*code != CL_SUCCESS) return nullptr;
    auto storage = std::make_unique<Storage>();
    storage->spec = spec;
    storage->mem = MemHandle(mem);
    return storage;
  }
  [[nodiscard]] std::unique_ptr<Storage> take_pooled(const StorageSpec& spec) {
    const auto found = free_.find(spec);
    if (found == free_.end()) return nullptr;
    std::vector<std::unique_ptr<Storage>>& free = found->second;
    // The oldest: then runs that ask for the same get the same, in whatever order they gave it
    // back, and arguments of kernels stay as they were set.
    const auto is_older = [](const auto& one, const auto& other) {
      return one->number < other->number;
    };
    const auto oldest = std::min_element(free.begin(), free.end(), is_older);
    std::unique_ptr<Storage> storage = std::move(*oldest);
    free.erase(oldest);
    if (free.empty()) free_.erase(found);
    pooled_bytes_ -= spec.bytes;
    ++reuses_;
    return storage;
  }
  void recycle(std::unique_ptr<Storage> storage) {
    std::lock_guard<std::mutex> lock(mutex_);
    const StorageSpec& spec = storage->spec;
    allocated_bytes_ -= spec.bytes;
    --(spec.is_image() ? images_ : buffers_);
    if (pooled_bytes_ + spec.bytes > info_.global_memory_bytes / kPoolShare) return;
    pooled_bytes_ += spec.bytes;
    const StorageSpec key = spec;
    free_[key].push_back(std::move(storage));
  }
  void clear_locked() {
    free_.clear();
    pooled_bytes_ = 0;
  }

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
             When when)
      : pool_(&pool), spec_(spec), convention_(convention) {
    if (when == When::kNow) (void)storage();
  }

  // Memory that is there already; it goes when nobody holds the storage any more.
  explicit Descriptor(std::shared_ptr<Storage> storage,
                      std::optional<TextureConvention> convention = std::nullopt)
      : pool_(nullptr), spec_(storage->spec), convention_(convention) {
    std::call_once(allocated_, [&] { storage_ = std::move(storage); });
  }

  // A view: the memory of another descriptor, perhaps mapped by another convention.
  Descriptor(const Descriptor& whole, TextureConvention convention)
      : pool_(whole.pool_), spec_(whole.spec_), convention_(convention) {
    std::call_once(allocated_, [&] { storage_ = whole.storage(); });
  }

  [[nodiscard]] const StorageSpec& spec() const { return spec_; }
  [[nodiscard]] bool is_image() const { return spec_.is_image(); }
  // How a tensor's axes map to the image; nothing for a buffer.
  [[nodiscard]] std::optional<TextureConvention> convention() const { return convention_; }
  [[nodiscard]] cl_mem mem() const { return storage()->mem.get(); }
  // Its memory, which is taken now if it was to be taken at the first use.
  [[nodiscard]] const std::shared_ptr<Storage>& storage() const {
    std::call_once(allocated_, [this] { storage_ = pool_->allocate(spec_); });
    return storage_;
  }

 private:
  MemoryPool* const pool_;  // null where the storage was given
  const StorageSpec spec_;
  const std::optional<TextureConvention> convention_;
  mutable std::once_flag allocated_;
  mutable std::shared_ptr<Storage> storage_;
};

}  // namespace adrenoc_runtime::opencl
