#include "model.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/runtime/device_api.h>
#include <tvm/runtime/memory/memory_manager.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "choose_device.h"
#include "clml/backends.h"
#include "clml/module.h"
#include "failure.h"
#include "loader_name.h"
#include "program_build.h"

namespace adrenoc {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::DeviceAPI;
using tvm::runtime::Tensor;

class Stopwatch {
 public:
  [[nodiscard]] double ms() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

Tensor empty_tensor(const std::vector<int64_t>& shape, const std::string& dtype, DLDevice device,
                    const std::string& scope) {
  ffi::Optional<ffi::String> memory;
  if (scope != "global") memory = ffi::String(scope);
  return Tensor::Empty(ffi::Shape(shape), ffi::StringToDLDataType(dtype), device, memory);
}

std::string index_text(const char* kind, size_t index, size_t count) {
  return "there is no " + std::string(kind) + " " + std::to_string(index) + "; the model has " +
         std::to_string(count);
}

const TensorSpec& spec_at(const std::vector<TensorSpec>& specs, size_t index, const char* kind) {
  if (index < specs.size()) return specs[index];
  throw Failure(ADRENOC_BAD_ARGUMENT, index_text(kind, index, specs.size()));
}

void check_bytes(const TensorSpec& spec, size_t bytes) {
  if (bytes == spec.bytes) return;
  throw Failure(ADRENOC_BAD_ARGUMENT, "`" + spec.name + "` has " + std::to_string(spec.bytes) +
                                          " bytes, got " + std::to_string(bytes));
}

}  // namespace

Model::Model(std::unique_ptr<Bundle> bundle, const LoadOptions& options)
    : bundle_(std::move(bundle)),
      recording_(options.no_record ? opencl::Recording::kOff : opencl::Recording::kBest) {
  const ChosenDevice chosen = choose_device(options.device, options.opencl_library);
  device_ = chosen.device;
  device_name_ = chosen.name;
  DeviceAPI::Get(device_)->SetDevice(device_);
  load_module();
  const Stopwatch building;
  std::future<opencl::BuildReport> build;
  if (device_.device_type == kDLOpenCL) build = start_build(options);
  upload_constants();
  if (build.valid()) {
    finish_build(std::move(build));
    // Regions of CLML, while nobody waits for a run; each that cannot run has its own kernels.
    clml::set_cache_folder(options.cache_folder);
    (void)clml::prepare_regions(*module_, device_.device_id);
  }
  times_.build_ms = building.ms();
  bound_inputs_.resize(manifest().inputs.size());
  bound_outputs_.resize(manifest().outputs.size());
}

void Model::load_module() {
  const Stopwatch watch;
  claim_loader_name();
  try {
    // Named, because Module::LoadFromFile goes by the path's ending, which this one lacks.
    const auto open = ffi::Function::GetGlobalRequired("ffi.Module.load_from_file.so");
    module_ = open(ffi::String(bundle_->library_path()), ffi::String("so")).cast<ffi::Module>();
    const auto load = (*module_)->GetFunction("vm_load_executable", true);
    if (!load.has_value()) refuse_bundle("model.so holds no program");
    machine_ = (*load)().cast<ffi::Module>();
    const auto initialize = (*machine_)->GetFunction("vm_initialization", false);
    std::vector<ffi::AnyView> arguments;
    const auto add = [&](DLDevice device) {
      arguments.emplace_back(static_cast<int64_t>(device.device_type));
      arguments.emplace_back(static_cast<int64_t>(device.device_id));
      arguments.emplace_back(static_cast<int64_t>(tvm::runtime::memory::kPooled));
    };
    // Bundles count on these two: 0 is the OpenCL device, 1 the CPU.
    add(device_);
    add(DLDevice{kDLCPU, 0});
    ffi::Any nothing;
    initialize.value().CallPacked(arguments.data(), static_cast<int>(arguments.size()), &nothing);
    const auto main = (*machine_)->GetFunction("main", false);
    if (!main.has_value()) refuse_bundle("model.so has no function `main`");
    main_ = *main;
  } catch (const ffi::Error& error) {
    refuse_bundle("model.so cannot be loaded: " + error.message());
  }
  times_.open_ms = watch.ms();
}

void Model::upload_constants() {
  const Stopwatch watch;
  for (const TensorSpec& spec : manifest().inputs) {
    arguments_.push_back(empty_tensor(spec.shape, spec.dtype, device_, "global"));
  }
  for (const ParamSpec& spec : manifest().params) {
    const std::string_view data = bundle_->params().at(spec.name).data;
    Tensor tensor = empty_tensor(spec.shape, spec.dtype, device_, spec.scope);
    if (!data.empty()) tensor.CopyFromBytes(data.data(), data.size());
    arguments_.push_back(std::move(tensor));
  }
  synchronize();
  times_.constants_ms = watch.ms();
}

std::future<opencl::BuildReport> Model::start_build(const LoadOptions& options) const {
  opencl::ProgramSources sources;
  sources.folder = options.cache_folder;
  sources.embedded = [this](const std::string& name) { return bundle_->programs(name); };
  sources.rule = options.qualcomm_programs ? DriverRule::kQualcomm : DriverRule::kSame;
  return std::async(std::launch::async, [this, sources] {
    return opencl::build_programs(*module_, device_.device_id, sources);
  });
}

void Model::finish_build(std::future<opencl::BuildReport> build) {
  const opencl::BuildReport report = build.get();
  times_.cache_hits = report.hits;
  times_.cache_misses = report.misses;
  times_.cache_damaged = report.damaged;
}

void Model::bind_input(size_t index, const void* data, size_t bytes) {
  const TensorSpec& spec = spec_at(manifest().inputs, index, "input");
  check_bytes(spec, bytes);
  if (data == nullptr) {
    throw Failure(ADRENOC_BAD_ARGUMENT, "the memory for input `" + spec.name + "` is null");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  bound_inputs_[index] = data;
}

void Model::bind_output(size_t index, void* data, size_t bytes) {
  const TensorSpec& spec = spec_at(manifest().outputs, index, "output");
  if (data != nullptr) check_bytes(spec, bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  bound_outputs_[index] = data;
}

void Model::run() {
  const std::lock_guard<std::mutex> lock(mutex_);
  upload();
  const Stopwatch computing;
  const ffi::Any result = launch();
  synchronize();
  times_.compute_ms = computing.ms();
  if (times_.runs == 0) times_.first_compute_ms = times_.compute_ms;

  const Stopwatch downloading;
  download(result);
  times_.download_ms = downloading.ms();
  ++times_.runs;
}

Model::Pace Model::run_repeatedly(uint32_t runs) {
  if (runs == 0) throw Failure(ADRENOC_BAD_ARGUMENT, "runs is 0, expected at least 1");
  const std::lock_guard<std::mutex> lock(mutex_);
  upload();
  synchronize();
  const Stopwatch computing;
  ffi::Any result;
  for (uint32_t i = 0; i < runs; ++i) {
    result = nullptr;  // else the next run would need outputs of its own
    result = launch();
  }
  const double host_ms = computing.ms() / runs;
  synchronize();
  const double ms = computing.ms() / runs;
  download(result);
  times_.runs += runs;
  return {ms, host_ms};
}

const char* Model::profile() {
  const std::lock_guard<std::mutex> lock(mutex_);
  upload();
  ffi::Function::GetGlobalRequired("adrenoc.opencl.profile_start")(device_.device_id);
  const ffi::Any result = launch();
  const auto stop = ffi::Function::GetGlobalRequired("adrenoc.opencl.profile_stop");
  profile_ = stop(device_.device_id).cast<std::string>();
  download(result);
  ++times_.runs;
  return profile_.c_str();
}

void Model::upload() {
  const std::vector<TensorSpec>& inputs = manifest().inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (bound_inputs_[i] == nullptr) {
      throw Failure(ADRENOC_BAD_ARGUMENT, "input `" + inputs[i].name + "` is not bound");
    }
  }
  DeviceAPI::Get(device_)->SetDevice(device_);
  const Stopwatch uploading;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].bytes != 0) arguments_[i].CopyFromBytes(bound_inputs_[i], inputs[i].bytes);
  }
  times_.upload_ms = uploading.ms();
}

ffi::Any Model::launch() {
  const std::vector<ffi::AnyView> views(arguments_.begin(), arguments_.end());
  if (device_.device_type == kDLOpenCL) {
    if (bound_run_ == nullptr) {
      bound_run_ =
          std::make_unique<opencl::BoundRun>(main_, views, device_.device_id, recording_);
    }
    return bound_run_->run();
  }
  ffi::Any result;
  main_.CallPacked(views.data(), static_cast<int>(views.size()), &result);
  return result;
}

void Model::download(const ffi::Any& result) {
  std::vector<Tensor> tensors;
  if (const auto one = result.as<Tensor>()) {
    tensors.push_back(*one);
  } else {
    for (const Tensor& tensor : result.cast<ffi::Array<Tensor>>()) tensors.push_back(tensor);
  }
  const std::vector<TensorSpec>& specs = manifest().outputs;
  if (tensors.size() != specs.size()) {
    refuse_bundle("model.so gives " + std::to_string(tensors.size()) +
                  " outputs, the manifest promises " + std::to_string(specs.size()));
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    const ffi::Shape shape(specs[i].shape);
    const bool fits = tensors[i].Shape().size() == shape.size() &&
                      std::equal(shape.begin(), shape.end(), tensors[i].Shape().begin()) &&
                      tensors[i].DataType() == ffi::StringToDLDataType(specs[i].dtype);
    if (!fits) {
      refuse_bundle("model.so gives `" + specs[i].name +
                    "` another shape or dtype than the manifest promises");
    }
    if (bound_outputs_[i] != nullptr && specs[i].bytes != 0) {
      tensors[i].CopyToBytes(bound_outputs_[i], specs[i].bytes);
    }
  }
}

adrenoc_times Model::times() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return times_;
}

adrenoc_launching Model::launching() {
  const std::lock_guard<std::mutex> lock(mutex_);
  launching_ = bound_run_ == nullptr ? opencl::LaunchReport() : bound_run_->report();
  adrenoc_launching told{};
  told.launches = static_cast<uint32_t>(launching_.launches);
  told.api_calls = static_cast<uint32_t>(launching_.api_calls);
  told.host_ms = launching_.host_ms;
  told.mode = launching_.mode.c_str();
  told.reason = launching_.reason.c_str();
  return told;
}

void Model::synchronize() const { DeviceAPI::Get(device_)->StreamSync(device_, nullptr); }

}  // namespace adrenoc
