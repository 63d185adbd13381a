// How a tensor's shape maps onto the extents of an image array of RGBA texels.
#pragma once

#include <tvm/ffi/dtype.h>

#include <optional>
#include <string>

#include "opencl/cl_types.h"

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

}  // namespace adrenoc_runtime::opencl
