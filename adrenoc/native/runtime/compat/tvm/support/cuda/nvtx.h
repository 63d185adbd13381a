// Marks for NVIDIA's profiler, which this runtime does not use: a scope that does nothing, by the
// name that TVM's VM expects.
#ifndef TVM_SUPPORT_CUDA_NVTX_H_
#define TVM_SUPPORT_CUDA_NVTX_H_

#include <string>

namespace tvm {
namespace support {

class NVTXScopedRange {
 public:
  explicit NVTXScopedRange(const char*) {}
  explicit NVTXScopedRange(const std::string&) {}
};

}  // namespace support
}  // namespace tvm

#endif  // TVM_SUPPORT_CUDA_NVTX_H_
