// The TVM module of kind "opencl": kernels in source form, built when they are first called.
#pragma once

#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "launch/kernel.h"
#include "programs/built_program.h"
#include "programs/kernel_text.h"
#include "runtime/metadata.h"

namespace adrenoc_runtime::opencl {

// Makes the code generator's choice between image reads with and without a sampler depend on the
// language that the kernel is compiled as.  As printed it asks for a *device* of version 2.0 or
// 3.0, so on one of 2.1 or 3.1 it drops the sampler, and then reading outside an image is
// undefined (some drivers crash) where kernels rely on 0.
[[nodiscard]] std::string with_samplers(std::string source);

// Functions that the module has beside its kernels.  The last two are also what TVM's own OpenCL
// module has, so tools that save and restore binaries work with both.
constexpr const char* kBuildAllFunction = "adrenoc.build_all";
constexpr const char* kProgramDigestFunction = "adrenoc.program_digest";
constexpr const char* kBuiltInsFunction = "adrenoc.built_ins";
constexpr const char* kSaveProgramsFunction = "adrenoc.save_programs";
constexpr const char* kLoadProgramsFunction = "adrenoc.load_programs";
constexpr const char* kSaveBinariesFunction = "opencl.GetPreCompiledPrograms";
constexpr const char* kLoadBinariesFunction = "opencl.SetPreCompiledPrograms";

using FunctionMap = tvm::ffi::Map<tvm::ffi::String, tvm::runtime::FunctionInfo>;

class OpenClModule final : public tvm::ffi::ModuleObj {
 public:
  // `format` must be "cl" (OpenCL C).  `inspected` maps a format's name to text for people.
  // Throws ValueError for another format and for a function without source.
  OpenClModule(tvm::ffi::Bytes source, tvm::ffi::String format, FunctionMap functions,
               tvm::ffi::Map<tvm::ffi::String, tvm::ffi::String> inspected);

  [[nodiscard]] const char* kind() const final { return "opencl"; }
  [[nodiscard]] int GetPropertyMask() const final {
    return tvm::ffi::Module::kBinarySerializable | tvm::ffi::Module::kRunnable;
  }
  [[nodiscard]] tvm::ffi::Optional<tvm::ffi::Function> GetFunction(
      const tvm::ffi::String& name) final;
  [[nodiscard]] tvm::ffi::Bytes SaveToBytes() const final;
  [[nodiscard]] tvm::ffi::String InspectSource(const tvm::ffi::String& format) const final;

  // The kernel built for a device, from the cache or now.
  [[nodiscard]] Kernel& kernel(const std::string& name, int device_id);

  // Builds every kernel, on several threads: drivers compile one program on one.  Returns how many
  // ms each took, an equal part of its program's, and 0 for those that were there or run the
  // text of another.
  [[nodiscard]] tvm::ffi::json::Object build_all(int device_id);

  // SHA-256 of all sources with the options that they are built with: what binaries depend on,
  // beside device and driver.
  [[nodiscard]] std::string program_digest(int device_id) const;

  // What becomes of built-ins that kernels are written for and drivers do not tell of, as a
  // sentence; "" where there are none.
  [[nodiscard]] std::string built_ins(int device_id) const;

  // All kernels in the form that the device runs, building what is not built yet.
  [[nodiscard]] tvm::ffi::Bytes save_binaries(int device_id);

  // Takes what save_binaries gave.  Throws ValueError when that was for another device or source,
  // or for another driver unless `driver_may_differ`; the module is then unchanged and still works
  // from source.
  void load_binaries(const std::string& bytes, int device_id, bool driver_may_differ);

 private:
  [[nodiscard]] tvm::ffi::Function launcher(const std::string& name,
                                            const tvm::runtime::FunctionInfo& info);

  using Programs = std::map<std::pair<std::string, int>, std::shared_ptr<const BuiltProgram>>;
  using Kernels = std::map<std::string, std::unique_ptr<Kernel>>;

  // The kernels of this module that run what `program` holds.
  [[nodiscard]] Kernels kernels_of(const std::shared_ptr<const BuiltProgram>& program,
                                   int device_id) const;
  // What all programs of the module begin with on a device.
  [[nodiscard]] std::string program_head(int device_id) const;
  // Builds the texts of `names` as one program, and their kernels.
  void build_together(const std::vector<std::string>& names, int device_id);
  // What is there stays: another thread may be launching it.
  void keep(const std::shared_ptr<const BuiltProgram>& program, Kernels kernels, int device_id);

  const tvm::ffi::Bytes code_;
  const tvm::ffi::String format_;
  const FunctionMap functions_;
  const tvm::ffi::Map<tvm::ffi::String, tvm::ffi::String> inspected_;
  const std::map<std::string, std::string> sources_;
  std::map<std::string, KernelText> texts_;  // of functions_
  std::mutex mutex_;
  Programs programs_;
  std::map<std::pair<std::string, int>, std::unique_ptr<Kernel>> kernels_;
};

}  // namespace adrenoc_runtime::opencl
