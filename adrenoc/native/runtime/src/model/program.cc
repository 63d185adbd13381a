#include "model/program.h"

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/runtime/memory/memory_manager.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/failure.h"
#include "launch/cancelling.h"
#include "modules/module.h"

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

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;

Program::Program(const std::string& library_path, DLDevice device, opencl::Recording recording)
    : device_(device), recording_(recording) {
  try {
    module_ = opencl::open_library(library_path);
    start_machine();
  } catch (const ffi::Error& error) {
    refuse_bundle({"model.so cannot be loaded: ", error.message()});
  }
}

void Program::start_machine() {
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

void Program::take_constants(const Manifest& manifest, Constants* constants) {
  for (const ParamSpec& spec : manifest.params) constants_.push_back(constants->get(spec));
}

void Program::drop_constants() {
  bound_run_.reset();
  inputs_.clear();
  constants_.clear();
}

ffi::Any Program::compute(const std::vector<Tensor>& inputs) {
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

std::vector<Tensor> Program::launch(const std::vector<Tensor>& inputs) {
  const ffi::Any result = compute(inputs);
  if (const auto one = result.as<Tensor>()) return {*one};
  const auto several = result.cast<ffi::Array<Tensor>>();
  return {several.begin(), several.end()};
}

void Program::forget() {
  if (bound_run_ != nullptr) bound_run_->forget();
}

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
