// The constants of a bundle on a device: each is moved there once, for all programs that read it.
#pragma once

#include <tvm/runtime/tensor.h>

#include <map>
#include <string>
#include <utility>

#include "bundle/bundle.h"

namespace adrenoc_runtime {

// Memory of a device for a dense tensor, or for a texture if `scope` says so.
[[nodiscard]] tvm::runtime::Tensor empty_tensor(const std::vector<int64_t>& shape,
                                                const std::string& dtype, DLDevice device,
                                                const std::string& scope);

class Constants {
 public:
  Constants(const Bundle& bundle, DLDevice device) : bundle_(bundle), device_(device) {}

  [[nodiscard]] tvm::runtime::Tensor get(const ParamSpec& spec);

 private:
  const Bundle& bundle_;
  const DLDevice device_;
  // By name and memory scope.
  std::map<std::pair<std::string, std::string>, tvm::runtime::Tensor> moved_;
};

}  // namespace adrenoc_runtime
