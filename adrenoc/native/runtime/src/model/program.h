// The code of one bucket on a device, with its constants.
#pragma once

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>
#include <tvm/runtime/tensor.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bundle/bundle.h"
#include "bundle/manifest.h"
#include "launch/bound_run.h"

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

class Program {
 public:
  // Loads model.so from `library_path`.  Throws Failure (bad bundle).
  Program(const std::string& library_path, DLDevice device, opencl::Recording recording);

  // Moves what `main` reads beside its inputs.
  void take_constants(const Manifest& manifest, Constants* constants);

  [[nodiscard]] tvm::ffi::Module module() const { return *module_; }
  // What a run calls, and what it passes after the inputs.
  [[nodiscard]] const tvm::ffi::Function& main() const { return main_; }
  [[nodiscard]] const std::vector<tvm::runtime::Tensor>& constants() const { return constants_; }

  // Gives them back, and what is kept for the next launch.
  void drop_constants();

  // Starts the kernels; the device's queue holds them when it returns.  Gives the outputs.
  // The next call may write to the same outputs.
  [[nodiscard]] std::vector<tvm::runtime::Tensor> launch(
      const std::vector<tvm::runtime::Tensor>& inputs);

  // Gives back what is kept for the next launch.
  void forget();

  // How launches reached the device; null before the first.
  [[nodiscard]] std::shared_ptr<const opencl::LaunchHistory> history() const { return history_; }

 private:
  // Throws Failure (bad bundle).
  void start_machine();
  [[nodiscard]] tvm::ffi::Any compute(const std::vector<tvm::runtime::Tensor>& inputs);

  DLDevice device_;
  opencl::Recording recording_;
  tvm::ffi::Optional<tvm::ffi::Module> module_;
  tvm::ffi::Function main_;
  std::vector<tvm::runtime::Tensor> constants_;
  std::vector<tvm::runtime::Tensor> inputs_;  // of the last launch
  std::unique_ptr<opencl::BoundRun> bound_run_;
  std::shared_ptr<const opencl::LaunchHistory> history_;  // of it, or of one that is gone
};

// Writes the tensor `given` at `data` to the device, filled up with zeros to the shape `whole`;
// the two may differ in axis 0.  `scratch` keeps its memory from run to run.
void upload_filled(const TensorSpec& given, const void* data, const TensorSpec& whole,
                   tvm::runtime::Tensor* tensor, std::vector<char>* scratch);

// Reads what `wanted` has of a tensor of the shape `whole` to `data`; they may differ in one axis.
void download_cropped(const tvm::runtime::Tensor& tensor, const TensorSpec& whole,
                      const TensorSpec& wanted, void* data, std::vector<char>* scratch);

}  // namespace adrenoc_runtime
