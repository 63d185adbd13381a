// Copies between the host and the device, by each way that OpenCL has.
#include <tvm/ffi/error.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "trials/deed.h"

namespace adrenoc_runtime {
namespace opencl {
namespace {

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

constexpr size_t kMostBytes = size_t{1} << 28;
constexpr size_t kPage = 4096;
constexpr size_t kTexelBytes = 8;  // of halves
constexpr size_t kImageWidth = 1024;

using MapBuffer = void* (*)(cl_command_queue, cl_mem, cl_uint, cl_bitfield, size_t, size_t, cl_uint,
                            const cl_event*, cl_event*, cl_int*);
using Unmap = cl_int (*)(cl_command_queue, cl_mem, void*, cl_uint, const cl_event*, cl_event*);

// Only measures map, so a driver that has no such function lacks these alone.
template <typename Function>
Function named(const char* name) {
  void* found = library_symbol(name);
  if (found == nullptr) TVM_FFI_THROW(RuntimeError) << "the OpenCL library has no " << name;
  return reinterpret_cast<Function>(found);
}

struct Way {
  const char* name;
  enum class Path { kCopy, kMap, kOwn, kImage } path;
  bool to_device;
};
constexpr Way kWays[] = {
    {"write", Way::Path::kCopy, true},       {"read", Way::Path::kCopy, false},
    {"map_write", Way::Path::kMap, true},    {"map_read", Way::Path::kMap, false},
    {"own_write", Way::Path::kOwn, true},    {"own_read", Way::Path::kOwn, false},
    {"image_write", Way::Path::kImage, true}, {"image_read", Way::Path::kImage, false}};

const Way& way_named(const std::string& name) {
  for (const Way& way : kWays) {
    if (name == way.name) return way;
  }
  TVM_FFI_THROW(ValueError) << "There is no way \"" << name << "\" to copy";
  TVM_FFI_UNREACHABLE();
}

// What the host has lies at the start of a page, as drivers ask for memory that they are to share.
class Pages {
 public:
  explicit Pages(size_t bytes) : held_(bytes + kPage) {
    const auto at = reinterpret_cast<uintptr_t>(held_.data());
    first_ = held_.data() + (kPage - at % kPage) % kPage;
  }
  [[nodiscard]] char* data() const { return first_; }

 private:
  std::vector<char> held_;
  char* first_;
};

class CopyDeed final : public Deed {
 public:
  CopyDeed(Device& device, const Way& way, size_t bytes)
      : device_(device), way_(way), bytes_(bytes), host_(bytes), memory_(make_memory()) {
    // What is read is there before.
    for (size_t i = 0; i < bytes_; ++i) host_.data()[i] = number_at(i);
    if (!is_own()) move(true);
    if (!way_.to_device && !is_own()) std::memset(host_.data(), 0, bytes_);
  }

  double timed_us() final {
    const HostClock clock;
    move(way_.to_device);
    return clock.us();
  }

  bool is_right() final {
    std::memset(host_.data(), 0, is_own() ? 0 : bytes_);
    move(false);
    for (size_t i = 0; i < bytes_; ++i) {
      if (host_.data()[i] != number_at(i)) return false;
    }
    return true;
  }

 private:
  [[nodiscard]] static char number_at(size_t place) {
    // The bytes of numbers that a half image may hold: those that are none may come back changed.
    return static_cast<char>(place % 2 == 0 ? place / 2 % 251 : 0x3c);
  }
  [[nodiscard]] bool is_own() const { return way_.path == Way::Path::kOwn; }
  [[nodiscard]] bool is_image() const { return way_.path == Way::Path::kImage; }

  [[nodiscard]] cl_mem create(cl_int* code) const {
    if (is_image()) {
      const cl_image_format format = {CL_RGBA, CL_HALF_FLOAT};
      cl_image_desc description = {};
      description.image_type = CL_MEM_OBJECT_IMAGE2D_ARRAY;
      description.image_width = kImageWidth;
      description.image_height = rows();
      description.image_array_size = 1;
      return api().clCreateImage(device_.context(), CL_MEM_READ_WRITE, &format, &description,
                                 nullptr, code);
    }
    const cl_bitfield extra = is_own() ? CL_MEM_USE_HOST_PTR
                              : way_.path == Way::Path::kMap ? CL_MEM_ALLOC_HOST_PTR
                                                             : 0;
    return api().clCreateBuffer(device_.context(), CL_MEM_READ_WRITE | extra, bytes_,
                                is_own() ? host_.data() : nullptr, code);
  }

  [[nodiscard]] MemHandle make_memory() const {
    cl_int code = CL_SUCCESS;
    MemHandle made(create(&code));
    check(code, is_image() ? "clCreateImage" : "clCreateBuffer");
    return made;
  }

  [[nodiscard]] size_t rows() const { return bytes_ / (kImageWidth * kTexelBytes); }

  void move(bool to_device) {
    const QueueLock queue = device_.lock_queue();
    switch (way_.path) {
      case Way::Path::kCopy:
        copy_buffer(queue.get(), to_device);
        break;
      case Way::Path::kImage:
        copy_image(queue.get(), to_device);
        break;
      default:
        map(queue.get(), to_device);
    }
  }

  void copy_buffer(cl_command_queue queue, bool to_device) {
    if (to_device) {
      ADRENOC_CL_CALL(clEnqueueWriteBuffer, queue, memory_.get(), CL_TRUE, 0, bytes_, host_.data(),
                      0, nullptr, nullptr);
    } else {
      ADRENOC_CL_CALL(clEnqueueReadBuffer, queue, memory_.get(), CL_TRUE, 0, bytes_, host_.data(),
                      0, nullptr, nullptr);
    }
  }

  void copy_image(cl_command_queue queue, bool to_device) {
    const std::array<size_t, 3> origin = {0, 0, 0};
    const std::array<size_t, 3> region = {kImageWidth, rows(), 1};
    if (to_device) {
      ADRENOC_CL_CALL(clEnqueueWriteImage, queue, memory_.get(), CL_TRUE, origin.data(),
                      region.data(), 0, 0, host_.data(), 0, nullptr, nullptr);
    } else {
      ADRENOC_CL_CALL(clEnqueueReadImage, queue, memory_.get(), CL_TRUE, origin.data(),
                      region.data(), 0, 0, host_.data(), 0, nullptr, nullptr);
    }
  }

  // Of memory that the driver has, what the host has is copied; its own is made in its place.
  void map(cl_command_queue queue, bool to_device) {
    cl_int code = CL_SUCCESS;
    count_api_call();
    void* mapped = map_buffer_(queue, memory_.get(), CL_TRUE, to_device ? CL_MAP_WRITE : CL_MAP_READ,
                               0, bytes_, 0, nullptr, nullptr, &code);
    check(code, "clEnqueueMapBuffer");
    if (!is_own() && to_device) std::memcpy(mapped, host_.data(), bytes_);
    if (!is_own() && !to_device) std::memcpy(host_.data(), mapped, bytes_);
    count_api_call();
    check(unmap_(queue, memory_.get(), mapped, 0, nullptr, nullptr), "clEnqueueUnmapMemObject");
    ADRENOC_CL_CALL(clFinish, queue);
  }

  Device& device_;
  const Way& way_;
  const size_t bytes_;
  const Pages host_;
  const MemHandle memory_;
  const MapBuffer map_buffer_ = named<MapBuffer>("clEnqueueMapBuffer");
  const Unmap unmap_ = named<Unmap>("clEnqueueUnmapMemObject");
};

}  // namespace

std::unique_ptr<Deed> make_copy_deed(Device& device, const json::Object& deed) {
  const Way& way = way_named(deed.at(ffi::String("way")).cast<std::string>());
  const size_t row = kImageWidth * kTexelBytes;
  const size_t bytes = number_of(deed, "bytes", kMostBytes);
  if (bytes % row != 0) TVM_FFI_THROW(ValueError) << bytes << " bytes are no whole rows of " << row;
  return std::make_unique<CopyDeed>(device, way, bytes);
}

}  // namespace opencl
}  // namespace adrenoc_runtime
