#include "model/constants.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/optional.h>

#include <string_view>
#include <vector>

#include "launch/cancelling.h"

namespace adrenoc_runtime {

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;

Tensor empty_tensor(const std::vector<int64_t>& shape, const std::string& dtype, DLDevice device,
                    const std::string& scope) {
  ffi::Optional<ffi::String> memory;
  if (scope != "global") memory = ffi::String(scope);
  return Tensor::Empty(ffi::Shape(shape), ffi::StringToDLDataType(dtype), device, memory);
}

Tensor Constants::get(const ParamSpec& spec) {
  const auto key = std::make_pair(spec.name, spec.scope);
  const auto found = moved_.find(key);
  if (found != moved_.end()) return found->second;
  opencl::end_if_cancelled();
  std::vector<char> brought;
  const auto move = bundle_.moves().find(spec.name);
  const bool is_moved = move != bundle_.moves().end();
  const StoredTensor& stored = bundle_.params().at(is_moved ? move->second.source : spec.name);
  std::string_view data = stored.data;
  if (is_moved) {
    brought = bring(move->second, stored, spec.name);
    data = {brought.data(), brought.size()};
  }
  Tensor tensor = empty_tensor(spec.shape, spec.dtype, device_, spec.scope);
  if (!data.empty()) tensor.CopyFromBytes(data.data(), data.size());
  // It is on the device: a language model's would else be in memory twice.
  bundle_.forget(stored.data);
  moved_.emplace(key, tensor);
  return tensor;
}

}  // namespace adrenoc_runtime
