// A tensor's buffer as an image of a kind that no tensor is: what micro-kernels compare with the
// arrays of images that textures are.
#ifndef ADRENOC_NATIVE_TRIALS_ARGUMENT_VIEW_H_
#define ADRENOC_NATIVE_TRIALS_ARGUMENT_VIEW_H_

#include <dlpack/dlpack.h>
#include <tvm/ffi/extra/json.h>

#include <memory>

#include "opencl/device.h"

namespace adrenoc_runtime {
namespace opencl {

// `view` is {"kind": "image2d" | "image2d_array" | "image1d_buffer" | "image2d_of_buffer",
// "format": "bytes" | "half" | "float", "width", "height"}, texels of four lanes.  The first two
// kinds hold a copy of the buffer's bytes, the others are made from the buffer itself, which has to
// live as long.  Throws ValueError for another view, or one that the buffer is too small for, and
// RuntimeError where the driver makes no such image.
[[nodiscard]] std::shared_ptr<Storage> view_buffer(Device& device, const DLTensor& tensor,
                                                   const tvm::ffi::json::Object& view);

}  // namespace opencl
}  // namespace adrenoc_runtime

#endif  // ADRENOC_NATIVE_TRIALS_ARGUMENT_VIEW_H_
