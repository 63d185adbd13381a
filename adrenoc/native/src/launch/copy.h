// Copies between the host, buffers and images.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>

#include <array>
#include <memory>
#include <vector>

#include "launch/kernel.h"
#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

inline char* host_data(const DLTensor& tensor) {
  return static_cast<char*>(tensor.data) + tensor.byte_offset;
}

constexpr std::array<size_t, 3> kOrigin = {0, 0, 0};

// Where the elements of a tensor lie on a device: in a region of an image, or in a buffer.
struct Place {
  const StorageSpec& spec;
  cl_mem mem;
  std::array<size_t, 3> region;
  size_t offset;
};

inline const Descriptor& descriptor_of(const DLTensor& tensor) {
  return *static_cast<const Descriptor*>(tensor.data);
}

// The texels that a tensor takes of its image: all columns and rows, and as many layers as the
// tensor has, which can be fewer than the image's when the tensor is a view.
inline std::array<size_t, 3> image_region(const DLTensor& tensor) {
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

inline Place place_of(const DLTensor& tensor, size_t bytes) {
  const Descriptor& descriptor = descriptor_of(tensor);
  const StorageSpec& spec = descriptor.spec();
  if (descriptor.is_image()) return {spec, descriptor.mem(), image_region(tensor), 0};
  if (tensor.byte_offset + bytes > spec.bytes) {
    TVM_FFI_THROW(ValueError) << "Bytes " << tensor.byte_offset << " to "
                              << tensor.byte_offset + bytes << " lie outside a buffer of "
                              << spec.bytes << " bytes";
  }
  return {spec, descriptor.mem(), {}, static_cast<size_t>(tensor.byte_offset)};
}

inline void read_to_host(const DLTensor& from, void* data, size_t bytes) {
  const Place source = place_of(from, bytes);
  const QueueLock queue = device_at(from.device.device_id).lock_queue();
  if (source.spec.is_image()) {
    ADRENOC_CL_CALL(clEnqueueReadImage, queue.get(), source.mem, CL_TRUE, kOrigin.data(),
                    source.region.data(), 0, 0, data, 0, nullptr, nullptr);
  } else {
    ADRENOC_CL_CALL(clEnqueueReadBuffer, queue.get(), source.mem, CL_TRUE, source.offset, bytes,
                    data, 0, nullptr, nullptr);
  }
}

inline void write_from_host(const void* data, const DLTensor& to, size_t bytes) {
  const Place target = place_of(to, bytes);
  const QueueLock queue = device_at(to.device.device_id).lock_queue();
  if (target.spec.is_image()) {
    ADRENOC_CL_CALL(clEnqueueWriteImage, queue.get(), target.mem, CL_TRUE, kOrigin.data(),
                    target.region.data(), 0, 0, data, 0, nullptr, nullptr);
  } else {
    ADRENOC_CL_CALL(clEnqueueWriteBuffer, queue.get(), target.mem, CL_TRUE, target.offset, bytes,
                    data, 0, nullptr, nullptr);
  }
}

inline void copy_on_device(const DLTensor& from, const DLTensor& to, size_t bytes) {
  Device& device = device_at(to.device.device_id);
  const Place source = place_of(from, bytes);
  const Place target = place_of(to, bytes);
  const bool of_image = source.spec.is_image();
  const bool to_image = target.spec.is_image();
  const bool are_alike =
      source.region == target.region && source.spec.channel_type == target.spec.channel_type;
  // Copying memory onto itself is what a view of the whole amounts to.
  if (are_alike && source.mem == target.mem && source.offset == target.offset) return;
  std::shared_ptr<Storage> staging;
  if (of_image && to_image && !are_alike) {
    // The same elements folded differently: a dense buffer stands between the two foldings.
    staging = device.memory().allocate(StorageSpec::buffer(bytes));
  }
  const QueueLock queue = device.lock_queue();
  if (of_image && to_image && are_alike) {
    ADRENOC_CL_CALL(clEnqueueCopyImage, queue.get(), source.mem, target.mem, kOrigin.data(),
                    kOrigin.data(), target.region.data(), 0, nullptr, nullptr);
  } else if (!of_image && !to_image) {
    ADRENOC_CL_CALL(clEnqueueCopyBuffer, queue.get(), source.mem, target.mem, source.offset,
                    target.offset, bytes, 0, nullptr, nullptr);
  } else {
    if (of_image) {
      ADRENOC_CL_CALL(clEnqueueCopyImageToBuffer, queue.get(), source.mem,
                      to_image ? staging->mem.get() : target.mem, kOrigin.data(),
                      source.region.data(), target.offset, 0, nullptr, nullptr);
    }
    if (to_image) {
      ADRENOC_CL_CALL(clEnqueueCopyBufferToImage, queue.get(),
                      of_image ? staging->mem.get() : source.mem, target.mem, source.offset,
                      kOrigin.data(), target.region.data(), 0, nullptr, nullptr);
    }
  }
}

// Copies the elements of `from` to `to`; one of them at least is on an OpenCL device, and host
// data is dense and row-major.  Returns when the data has arrived if the host or two devices take
// part, else when the copy is in the queue.  Throws ValueError for strided tensors, for tensors
// of different size, and for an image that does not fit its tensor.
inline void copy_tensor(const DLTensor& from, const DLTensor& to) {
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
    capture->obstruct(
        "tensors are copied between its launches, as before and after what the CPU "
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

// A dense tensor at `data` of the host, like another one.
[[nodiscard]] inline DLTensor on_host(const DLTensor& like, void* data) {
  return {data, DLDevice{kDLCPU, 0}, like.ndim, like.dtype, like.shape, nullptr, 0};
}

}  // namespace adrenoc_runtime::opencl
