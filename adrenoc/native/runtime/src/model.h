// A bundle that is loaded on a device and can run.
#ifndef ADRENOC_RUNTIME_MODEL_H_
#define ADRENOC_RUNTIME_MODEL_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>
#include <tvm/runtime/tensor.h>

#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "adrenoc.h"
#include "bound_run.h"
#include "bundle.h"
#include "program_build.h"

namespace adrenoc {

struct LoadOptions {
  bool trust_files = false;
  std::string device;
  std::string opencl_library;
  std::string cache_folder;
  bool qualcomm_programs = false;
  bool no_record = false;
};

class Model {
 public:
  // Moves the constants to the device and builds the kernels.  Throws Failure.
  Model(std::unique_ptr<Bundle> bundle, const LoadOptions& options);

  [[nodiscard]] const Manifest& manifest() const { return bundle_->manifest(); }
  [[nodiscard]] const std::string& device_name() const { return device_name_; }

  void bind_input(size_t index, const void* data, size_t bytes);
  void bind_output(size_t index, void* data, size_t bytes);
  void run();
  struct Pace {
    double ms;
    double host_ms;
  };
  [[nodiscard]] Pace run_repeatedly(uint32_t runs);
  // JSON: [kernel, start_ns, end_ns] of each launch of one run; good until the next call.
  [[nodiscard]] const char* profile();
  [[nodiscard]] adrenoc_times times() const;
  // Of the last run; the texts are good until the next call.
  [[nodiscard]] adrenoc_launching launching();

 private:
  void load_module();
  void upload_constants();
  // Builds kernels in the background, while constants move to the device.
  [[nodiscard]] std::future<opencl::BuildReport> start_build(const LoadOptions& options) const;
  void finish_build(std::future<opencl::BuildReport> build);
  void upload();
  [[nodiscard]] tvm::ffi::Any launch();
  void download(const tvm::ffi::Any& result);
  void synchronize() const;

  // The bundle comes first, so that it goes last: the module's code lies in its file.
  std::unique_ptr<Bundle> bundle_;
  DLDevice device_;
  std::string device_name_;
  tvm::ffi::Optional<tvm::ffi::Module> module_;
  tvm::ffi::Optional<tvm::ffi::Module> machine_;
  tvm::ffi::Function main_;
  std::vector<tvm::runtime::Tensor> arguments_;  // the inputs, then the constants
  std::vector<const void*> bound_inputs_;
  std::vector<void*> bound_outputs_;
  opencl::Recording recording_;
  std::unique_ptr<opencl::BoundRun> bound_run_;
  opencl::LaunchReport launching_;
  adrenoc_times times_{};
  std::string profile_;
  mutable std::mutex mutex_;
};

}  // namespace adrenoc

#endif  // ADRENOC_RUNTIME_MODEL_H_
