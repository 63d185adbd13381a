// The model's code for the CPU, which an int8 bundle may carry (`compile --fallback cpu`).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bundle/manifest.h"
#include "files/safetensors.h"
#include "launch/cancelling.h"
#include "model/model_environment.h"

namespace adrenoc_runtime {

class CpuModel {
 public:
  // Opens the library at `path`, and gives it the weights that it takes of `params`, which are not
  // read later.  Throws Failure (bad bundle) where it is not what `manifest` says.
  CpuModel(const std::string& path, const Manifest& manifest,
           const std::map<std::string, StoredTensor>& params);
  ~CpuModel();

  // Computes on numbers as the model file has them; an output may be null.  One call at a time.
  // False where it was cancelled: the outputs hold anything then.
  [[nodiscard]] bool compute(const std::vector<const void*>& inputs,
                             const std::vector<void*>& outputs,
                             const opencl::Cancelling& cancelling);

 private:
  struct FreeAligned {
    void operator()(void* memory) const;
  };
  void check(const Manifest& manifest) const;
  void borrow(const std::map<std::string, StoredTensor>& params) const;

  void* library_ = nullptr;
  const model_facts* facts_ = nullptr;
  model_environment environment_{};
  std::unique_ptr<void, FreeAligned> arena_;
  std::vector<std::vector<int8_t>> numbers_;  // of inputs, then outputs, in the code's own type
};

}  // namespace adrenoc_runtime
