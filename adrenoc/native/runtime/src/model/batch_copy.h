// Moves tensors between the host and a bucket whose batch may be larger than the one asked for.
#pragma once

#include <tvm/runtime/tensor.h>

#include <vector>

#include "bundle/manifest.h"

namespace adrenoc_runtime {

// Writes the tensor `given` at `data` to the device, filled up with zeros to the shape `whole`;
// the two may differ in axis 0.  `scratch` keeps its memory from run to run.
void upload_filled(const TensorSpec& given, const void* data, const TensorSpec& whole,
                   tvm::runtime::Tensor* tensor, std::vector<char>* scratch);

// Reads what `wanted` has of a tensor of the shape `whole` to `data`; they may differ in one axis.
void download_cropped(const tvm::runtime::Tensor& tensor, const TensorSpec& whole,
                      const TensorSpec& wanted, void* data, std::vector<char>* scratch);

}  // namespace adrenoc_runtime
