// Marks for NVIDIA's profiler, which this runtime does not use: a scope that does nothing, by the
// name that TVM's VM expects.
#pragma once

#include <string>

namespace tvm::support {

class NVTXScopedRange {
 public:
  explicit NVTXScopedRange(const char*) {}
  explicit NVTXScopedRange(const std::string&) {}
};

}  // namespace tvm::support
