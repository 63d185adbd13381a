// Memory that an app made, as a tensor: the device reads and writes it in place.
#ifndef ADRENOC_NATIVE_EXTERNAL_MEMORY_H_
#define ADRENOC_NATIVE_EXTERNAL_MEMORY_H_

#include <tvm/ffi/container/shape.h>
#include <tvm/runtime/tensor.h>

#include "device.h"

namespace adrenoc {
namespace opencl {

// A dense tensor in an OpenCL buffer, which is retained for as long as the tensor lives.  Throws
// Failure (bad argument) for an image, a buffer of another context, or one that is too small.
[[nodiscard]] tvm::runtime::Tensor tensor_in_buffer(DLDevice device, cl_mem buffer,
                                                    tvm::ffi::ShapeView shape, DLDataType dtype);

// A dense tensor in an AHardwareBuffer of the format BLOB, which must outlive the tensor.  Throws
// Failure: unsupported where the device or the system cannot do that, bad argument for another
// format or too few bytes.
[[nodiscard]] tvm::runtime::Tensor tensor_in_hardware_buffer(DLDevice device, void* buffer,
                                                             tvm::ffi::ShapeView shape,
                                                             DLDataType dtype);

}  // namespace opencl
}  // namespace adrenoc

#endif  // ADRENOC_NATIVE_EXTERNAL_MEMORY_H_
