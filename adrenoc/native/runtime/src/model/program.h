// The code of one bucket on a device, with its constants.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>
#include <tvm/runtime/memory/memory_manager.h>
#include <tvm/runtime/tensor.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "bundle/bundle.h"
#include "bundle/manifest.h"
#include "launch/bound_run.h"
#include "launch/cancelling.h"
#include "modules/module.h"

namespace adrenoc_runtime {

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;

// Memory of a device for a dense tensor, or for a texture if `scope` says so.
[[nodiscard]] inline Tensor empty_tensor(const std::vector<int64_t>& shape,
                                         const std::string& dtype, DLDevice device,
                                         const std::string& scope) {
  ffi::Optional<ffi::String> memory;
  if (scope != "global") memory = ffi::String(scope);
  return Tensor::Empty(ffi::Shape(shape), ffi::StringToDLDataType(dtype), device, memory);
}

class Constants {
 public:
  Constants(const Bundle& bundle, DLDevice device) : bundle_(bundle), device_(device) {}

  [[nodiscard]] Tensor get(const ParamSpec& spec) {
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

 private:
  const Bundle& bundle_;
  const DLDevice device_;
  // By name and memory scope.
  std::map<std::pair<std::string, std::string>, Tensor> moved_;
};

class Program {
 public:
  // Loads model.so from `library_path`.  Throws Failure (bad bundle).
  Program(const std::string& library_path, DLDevice device, opencl::Recording recording)
      : device_(device), recording_(recording) {
    try {
      module_ = opencl::open_library(library_path);
      start_machine();
    } catch (const ffi::Error& error) {
      refuse_bundle({"model.so cannot be loaded: ", error.message()});
    }
  }

  // Moves what `main` reads beside its inputs.
  void take_constants(const Manifest& manifest, Constants* constants) {
    for (const ParamSpec& spec : manifest.params) constants_.push_back(constants->get(spec));
  }

  [[nodiscard]] ffi::Module module() const { return *module_; }
  // What a run calls, and what it passes after the inputs.
  [[nodiscard]] const ffi::Function& main() const { return main_; }
  [[nodiscard]] const std::vector<Tensor>& constants() const { return constants_; }

  // Gives them back, and what is kept for the next launch.
  void drop_constants() {
    bound_run_.reset();
    inputs_.clear();
    constants_.clear();
  }

  // Starts the kernels; the device's queue holds them when it returns.  Gives the outputs.
  // The next call may write to the same outputs.
  [[nodiscard]] std::vector<Tensor> launch(const std::vector<Tensor>& inputs) {
    const ffi::Any result = compute(inputs);
    if (const auto one = result.as<Tensor>()) return {*one};
    const auto several = result.cast<ffi::Array<Tensor>>();
    return {several.begin(), several.end()};
  }

  // Gives back what is kept for the next launch.
  void forget() {
    if (bound_run_ != nullptr) bound_run_->forget();
  }

  // How launches reached the device; null before the first.
  [[nodiscard]] std::shared_ptr<const opencl::LaunchHistory> history() const { return history_; }

 private:
  // Throws Failure (bad bundle).
  void start_machine() {
    const auto load = (*module_)->GetFunction("vm_load_executable", true);
    if (!load.has_value()) refuse_bundle("model.so holds no program");
    const auto machine = (*load)().cast<ffi::Module>();
    const auto initialize = machine->GetFunction("vm_initialization", false);
    std::vector<ffi::AnyView> arguments;
    const auto add = [&](DLDevice each) {
      arguments.emplace_back(static_cast<int64_t>(each.device_type));
      arguments.emplace_back(static_cast<int64_t>(each.device_id));
      arguments.emplace_back(static_cast<int64_t>(tvm::runtime::memory::kPooled));
    };
    // Bundles count on these two: 0 is the OpenCL device, 1 the CPU.
    add(device_);
    add(DLDevice{kDLCPU, 0});
    ffi::Any nothing;
    initialize.value().CallPacked(arguments.data(), static_cast<int>(arguments.size()), &nothing);
    const auto main = machine->GetFunction("main", false);
    if (!main.has_value()) refuse_bundle("model.so has no function `main`");
    main_ = *main;
  }
  [[nodiscard]] ffi::Any compute(const std::vector<Tensor>& inputs) {
    std::vector<ffi::AnyView> views(inputs.begin(), inputs.end());
    views.insert(views.end(), constants_.begin(), constants_.end());
    if (device_.device_type != kDLOpenCL) {
      ffi::Any result;
      main_.CallPacked(views.data(), static_cast<int>(views.size()), &result);
      return result;
    }
    if (bound_run_ == nullptr) {
      bound_run_ = std::make_unique<opencl::BoundRun>(main_, views, device_.device_id, recording_);
      history_ = bound_run_->history();
      inputs_ = inputs;
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].same_as(inputs_[i])) continue;
      bound_run_->rebind(i, inputs[i]);
      inputs_[i] = inputs[i];
    }
    return bound_run_->run();
  }

  DLDevice device_;
  opencl::Recording recording_;
  ffi::Optional<ffi::Module> module_;
  ffi::Function main_;
  std::vector<Tensor> constants_;
  std::vector<Tensor> inputs_;  // of the last launch
  std::unique_ptr<opencl::BoundRun> bound_run_;
  std::shared_ptr<const opencl::LaunchHistory> history_;  // of it, or of one that is gone
};

// Writes the tensor `given` at `data` to the device, filled up with zeros to the shape `whole`;
// the two may differ in axis 0.  `scratch` keeps its memory from run to run.
inline void upload_filled(const TensorSpec& given, const void* data, const TensorSpec& whole,
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

// Reads what `wanted` has of a tensor of the shape `whole` to `data`; they may differ in one axis.
inline void download_cropped(const Tensor& tensor, const TensorSpec& whole,
                             const TensorSpec& wanted, void* data, std::vector<char>* scratch) {
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
