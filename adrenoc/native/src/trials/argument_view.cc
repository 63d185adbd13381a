#include "trials/argument_view.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>

#include <string>

#include "opencl/memory.h"

namespace adrenoc_runtime {
namespace opencl {
namespace {

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

struct Format {
  const char* name;
  cl_uint channel_type;
  size_t texel_bytes;
};
constexpr Format kFormats[] = {
    {"bytes", CL_UNORM_INT8, 4}, {"half", CL_HALF_FLOAT, 8}, {"float", CL_FLOAT, 16}};

struct Kind {
  const char* name;
  cl_uint image_type;
  bool of_buffer;  // made from the buffer itself
};
constexpr Kind kKinds[] = {{"image2d", CL_MEM_OBJECT_IMAGE2D, false},
                           {"image2d_array", CL_MEM_OBJECT_IMAGE2D_ARRAY, false},
                           {"image1d_buffer", CL_MEM_OBJECT_IMAGE1D_BUFFER, true},
                           {"image2d_of_buffer", CL_MEM_OBJECT_IMAGE2D, true}};

template <typename Row, size_t N>
const Row& row_named(const Row (&rows)[N], const json::Object& view, const char* key) {
  const std::string name = view.at(ffi::String(key)).cast<std::string>();
  for (const Row& row : rows) {
    if (name == row.name) return row;
  }
  TVM_FFI_THROW(ValueError) << "A view has the " << key << " \"" << name << "\"";
  TVM_FFI_UNREACHABLE();
}

size_t extent_of(const json::Object& view, const char* key) {
  const int64_t extent = view.at(ffi::String(key)).cast<int64_t>();
  if (extent <= 0) TVM_FFI_THROW(ValueError) << "A view has the " << key << " " << extent;
  return static_cast<size_t>(extent);
}

void copy_into(Device& device, cl_mem buffer, cl_mem image, const ImageExtent& extent) {
  const std::array<size_t, 3> origin = {0, 0, 0};
  const std::array<size_t, 3> region = {extent.width, extent.height, extent.layers};
  const QueueLock queue = device.lock_queue();
  ADRENOC_CL_CALL(clEnqueueCopyBufferToImage, queue.get(), buffer, image, 0, origin.data(),
                  region.data(), 0, nullptr, nullptr);
}

}  // namespace

std::shared_ptr<Storage> view_buffer(Device& device, const DLTensor& tensor,
                                     const json::Object& view) {
  const Kind& kind = row_named(kKinds, view, "kind");
  const Format& format = row_named(kFormats, view, "format");
  const ImageExtent extent{extent_of(view, "width"), extent_of(view, "height"), 1};
  const auto& descriptor = *static_cast<const Descriptor*>(tensor.data);
  const size_t bytes = extent.texels() * format.texel_bytes;
  if (descriptor.is_image() || bytes > ffi::GetDataSize(tensor)) {
    TVM_FFI_THROW(ValueError) << "A view of " << bytes << " bytes is no part of the tensor";
  }
  const cl_image_format told = {CL_RGBA, format.channel_type};
  cl_image_desc description = {};
  description.image_type = kind.image_type;
  description.image_width = extent.width;
  if (kind.image_type != CL_MEM_OBJECT_IMAGE1D_BUFFER) description.image_height = extent.height;
  if (kind.image_type == CL_MEM_OBJECT_IMAGE2D_ARRAY) description.image_array_size = 1;
  if (kind.of_buffer) {
    description.mem_object = descriptor.mem();
    if (kind.image_type == CL_MEM_OBJECT_IMAGE2D) {
      description.image_row_pitch = extent.width * format.texel_bytes;
    }
  }
  cl_int code = CL_SUCCESS;
  auto storage = std::make_shared<Storage>();
  storage->spec = StorageSpec::buffer(bytes);
  storage->mem = MemHandle(api().clCreateImage(device.context(), CL_MEM_READ_WRITE, &told,
                                               &description, nullptr, &code));
  check(code, "clCreateImage");
  if (!kind.of_buffer) copy_into(device, descriptor.mem(), storage->mem.get(), extent);
  return storage;
}

}  // namespace opencl
}  // namespace adrenoc_runtime
