#include "launch/copy.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>

#include <array>
#include <vector>

#include "launch/kernel.h"
#include "opencl/device.h"

namespace adrenoc_runtime::opencl {
namespace {

constexpr std::array<size_t, 3> kOrigin = {0, 0, 0};

const Descriptor& descriptor_of(const DLTensor& tensor) {
  return *static_cast<const Descriptor*>(tensor.data);
}

char* host_data(const DLTensor& tensor) {
  return static_cast<char*>(tensor.data) + tensor.byte_offset;
}

// The texels that a tensor takes of its image: all columns and rows, and as many layers as the
// tensor has, which can be fewer than the image's when the tensor is a view.
std::array<size_t, 3> image_region(const DLTensor& tensor) {
  const Descriptor& descriptor = descriptor_of(tensor);
  const StorageSpec& spec = descriptor.spec();
  const ImageExtent extent = image_extent(tensor.shape, tensor.ndim, *descriptor.convention());
  if (extent.width != spec.extent.width || extent.height != spec.extent.height ||
      extent.layers > spec.extent.layers || image_channel_type(tensor.dtype) != spec.channel_type ||
      tensor.byte_offset != 0) {
    TVM_FFI_THROW(ValueError) << "A tensor of shape " << shape_text(tensor.shape, tensor.ndim)
                              << " and type " << tvm::ffi::DLDataTypeToString(tensor.dtype)
                              << " at byte " << tensor.byte_offset << " does not fit the "
                              << spec.text() << " that it is a view of";
  }
  return {extent.width, extent.height, extent.layers};
}

void check_buffer_range(const DLTensor& tensor, size_t bytes) {
  const size_t capacity = descriptor_of(tensor).spec().bytes;
  if (tensor.byte_offset + bytes > capacity) {
    TVM_FFI_THROW(ValueError) << "Bytes " << tensor.byte_offset << " to "
                              << tensor.byte_offset + bytes << " lie outside a buffer of "
                              << capacity << " bytes";
  }
}

void read_to_host(const DLTensor& from, void* data, size_t bytes) {
  const Descriptor& source = descriptor_of(from);
  const QueueLock queue = device_at(from.device.device_id).lock_queue();
  if (source.is_image()) {
    const auto region = image_region(from);
    ADRENOC_CL_CALL(clEnqueueReadImage, queue.get(), source.mem(), CL_TRUE, kOrigin.data(),
                    region.data(), 0, 0, data, 0, nullptr, nullptr);
  } else {
    check_buffer_range(from, bytes);
    ADRENOC_CL_CALL(clEnqueueReadBuffer, queue.get(), source.mem(), CL_TRUE, from.byte_offset,
                    bytes, data, 0, nullptr, nullptr);
  }
}

void write_from_host(const void* data, const DLTensor& to, size_t bytes) {
  const Descriptor& target = descriptor_of(to);
  const QueueLock queue = device_at(to.device.device_id).lock_queue();
  if (target.is_image()) {
    const auto region = image_region(to);
    ADRENOC_CL_CALL(clEnqueueWriteImage, queue.get(), target.mem(), CL_TRUE, kOrigin.data(),
                    region.data(), 0, 0, data, 0, nullptr, nullptr);
  } else {
    check_buffer_range(to, bytes);
    ADRENOC_CL_CALL(clEnqueueWriteBuffer, queue.get(), target.mem(), CL_TRUE, to.byte_offset, bytes,
                    data, 0, nullptr, nullptr);
  }
}

void copy_image_to_image(Device& device, const DLTensor& from, const DLTensor& to, size_t bytes) {
  const Descriptor& source = descriptor_of(from);
  const Descriptor& target = descriptor_of(to);
  const auto source_region = image_region(from);
  const auto target_region = image_region(to);
  if (source_region == target_region && source.spec().channel_type == target.spec().channel_type) {
    // Copying an image onto itself is what a view of the whole amounts to.
    if (source.mem() == target.mem()) return;
    const QueueLock queue = device.lock_queue();
    ADRENOC_CL_CALL(clEnqueueCopyImage, queue.get(), source.mem(), target.mem(), kOrigin.data(),
                    kOrigin.data(), target_region.data(), 0, nullptr, nullptr);
    return;
  }
  // The same elements folded differently: a dense buffer stands between the two foldings.
  const auto staging = device.memory().allocate(StorageSpec::buffer(bytes));
  const QueueLock queue = device.lock_queue();
  ADRENOC_CL_CALL(clEnqueueCopyImageToBuffer, queue.get(), source.mem(), staging->mem.get(),
                  kOrigin.data(), source_region.data(), 0, 0, nullptr, nullptr);
  ADRENOC_CL_CALL(clEnqueueCopyBufferToImage, queue.get(), staging->mem.get(), target.mem(), 0,
                  kOrigin.data(), target_region.data(), 0, nullptr, nullptr);
}

void copy_buffer_to_buffer(Device& device, const DLTensor& from, const DLTensor& to, size_t bytes) {
  check_buffer_range(from, bytes);
  check_buffer_range(to, bytes);
  const cl_mem source = descriptor_of(from).mem();
  const cl_mem target = descriptor_of(to).mem();
  if (source == target && from.byte_offset == to.byte_offset) return;
  const QueueLock queue = device.lock_queue();
  ADRENOC_CL_CALL(clEnqueueCopyBuffer, queue.get(), source, target, from.byte_offset,
                  to.byte_offset, bytes, 0, nullptr, nullptr);
}

void copy_on_device(const DLTensor& from, const DLTensor& to, size_t bytes) {
  Device& device = device_at(to.device.device_id);
  const Descriptor& source = descriptor_of(from);
  const Descriptor& target = descriptor_of(to);
  if (source.is_image() && target.is_image()) {
    copy_image_to_image(device, from, to, bytes);
  } else if (source.is_image()) {
    check_buffer_range(to, bytes);
    const auto region = image_region(from);
    const QueueLock queue = device.lock_queue();
    ADRENOC_CL_CALL(clEnqueueCopyImageToBuffer, queue.get(), source.mem(), target.mem(),
                    kOrigin.data(), region.data(), to.byte_offset, 0, nullptr, nullptr);
  } else if (target.is_image()) {
    check_buffer_range(from, bytes);
    const auto region = image_region(to);
    const QueueLock queue = device.lock_queue();
    ADRENOC_CL_CALL(clEnqueueCopyBufferToImage, queue.get(), source.mem(), target.mem(),
                    from.byte_offset, kOrigin.data(), region.data(), 0, nullptr, nullptr);
  } else {
    copy_buffer_to_buffer(device, from, to, bytes);
  }
}

}  // namespace

void copy_tensor(const DLTensor& from, const DLTensor& to) {
  const size_t bytes = tvm::ffi::GetDataSize(from);
  if (bytes != tvm::ffi::GetDataSize(to)) {
    TVM_FFI_THROW(ValueError) << "Cannot copy " << bytes << " bytes into a tensor of "
                              << tvm::ffi::GetDataSize(to) << " bytes";
  }
  if (!tvm::ffi::IsContiguous(from) || !tvm::ffi::IsContiguous(to)) {
    TVM_FFI_THROW(ValueError) << "OpenCL copies dense tensors only; make it contiguous first";
  }
  if (bytes == 0) return;
  if (Capture* capture = CaptureScope::current()) {
    capture->obstruct("tensors are copied between its launches, as before and after what the CPU "
                      "computes");
  }
  const bool from_device = from.device.device_type == kDLOpenCL;
  const bool to_device = to.device.device_type == kDLOpenCL;
  if (from_device && to_device) {
    if (from.device.device_id == to.device.device_id) return copy_on_device(from, to, bytes);
    // Two devices share no context: the data goes through the host.
    std::vector<char> staging(bytes);
    read_to_host(from, staging.data(), bytes);
    write_from_host(staging.data(), to, bytes);
  } else if (from_device && to.device.device_type == kDLCPU) {
    read_to_host(from, host_data(to), bytes);
  } else if (to_device && from.device.device_type == kDLCPU) {
    write_from_host(host_data(from), to, bytes);
  } else {
    TVM_FFI_THROW(ValueError) << "OpenCL cannot copy from device type " << from.device.device_type
                              << " to device type " << to.device.device_type;
  }
}

DLTensor on_host(const DLTensor& like, void* data) {
  return {data, DLDevice{kDLCPU, 0}, like.ndim, like.dtype, like.shape, nullptr, 0};
}

}  // namespace adrenoc_runtime::opencl
