#include "opencl/texture_shape.h"

#include <tvm/ffi/error.h>

namespace adrenoc_runtime::opencl {

std::optional<TextureConvention> texture_convention(const std::string& scope) {
  if (scope.empty() || scope == "global") return std::nullopt;
  if (scope == "global.texture" || scope == "texture") return TextureConvention::kActivation;
  if (scope == "global.texture-weight") return TextureConvention::kWeight;
  if (scope == "global.texture-nhwc") return TextureConvention::kNhwc;
  TVM_FFI_THROW(ValueError) << "OpenCL memory has no scope \"" << scope
                            << "\"; expected global, global.texture, global.texture-weight or "
                               "global.texture-nhwc";
  TVM_FFI_UNREACHABLE();
}

ImageExtent image_extent(const int64_t* shape, int ndim, TextureConvention convention) {
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

cl_uint image_channel_type(DLDataType dtype) {
  if (dtype.code == kDLFloat && dtype.lanes == 1) {
    if (dtype.bits == 16) return CL_HALF_FLOAT;
    if (dtype.bits == 32) return CL_FLOAT;
  }
  TVM_FFI_THROW(ValueError) << "A texture holds float16 or float32, but got "
                            << tvm::ffi::DLDataTypeToString(dtype);
  TVM_FFI_UNREACHABLE();
}

size_t texel_bytes(cl_uint channel_type) { return channel_type == CL_HALF_FLOAT ? 8 : 16; }

std::string shape_text(const int64_t* shape, int ndim) {
  std::string text = "[";
  for (int i = 0; i < ndim; ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace adrenoc_runtime::opencl
