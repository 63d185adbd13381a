// Copies between the host, buffers and images.
#pragma once

#include <dlpack/dlpack.h>

namespace adrenoc_runtime::opencl {

// Copies the elements of `from` to `to`; one of them at least is on an OpenCL device, and host
// data is dense and row-major.  Returns when the data has arrived if the host or two devices take
// part, else when the copy is in the queue.  Throws ValueError for strided tensors, for tensors
// of different size, and for an image that does not fit its tensor.
void copy_tensor(const DLTensor& from, const DLTensor& to);
// A dense tensor at `data` of the host, like another one.
[[nodiscard]] DLTensor on_host(const DLTensor& like, void* data);

}  // namespace adrenoc_runtime::opencl
