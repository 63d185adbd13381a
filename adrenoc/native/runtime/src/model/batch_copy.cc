#include "model/batch_copy.h"

#include <algorithm>
#include <cstring>

namespace adrenoc_runtime {

using tvm::runtime::Tensor;

void upload_filled(const TensorSpec& given, const void* data, const TensorSpec& whole,
                   Tensor* tensor, std::vector<char>* scratch) {
  if (whole.bytes == 0) return;
  if (given.bytes == whole.bytes) {
    tensor->CopyFromBytes(data, whole.bytes);
    return;
  }
  // Axis 0 is the slowest: what is given comes first, what is missing last.
  scratch->assign(whole.bytes, 0);
  std::memcpy(scratch->data(), data, given.bytes);
  tensor->CopyFromBytes(scratch->data(), whole.bytes);
}

void download_cropped(const Tensor& tensor, const TensorSpec& whole, const TensorSpec& wanted,
                      void* data, std::vector<char>* scratch) {
  if (wanted.bytes == 0) return;
  if (wanted.bytes == whole.bytes) {
    tensor.CopyToBytes(data, whole.bytes);
    return;
  }
  scratch->resize(whole.bytes);
  tensor.CopyToBytes(scratch->data(), whole.bytes);
  const auto differ = std::mismatch(whole.shape.begin(), whole.shape.end(), wanted.shape.begin());
  // For each choice of the axes before that one, a run of bytes, of which the first are wanted.
  size_t repeats = 1;
  for (auto extent = whole.shape.begin(); extent != differ.first; ++extent) {
    repeats *= static_cast<size_t>(*extent);
  }
  const size_t step = whole.bytes / repeats;
  const size_t kept = wanted.bytes / repeats;
  for (size_t i = 0; i < repeats; ++i) {
    std::memcpy(static_cast<char*>(data) + i * kept, scratch->data() + i * step, kept);
  }
}

}  // namespace adrenoc_runtime
