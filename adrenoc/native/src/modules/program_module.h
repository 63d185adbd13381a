// A set of kernels, as TVM's module of kind "opencl" shows it.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>

#include <string>
#include <utility>

#include "modules/module.h"
#include "opencl/device.h"
#include "programs/program_cache.h"

namespace adrenoc_runtime::opencl {

// Functions of a module by name, because module classes that come from a library carry no C++ type
// information.
class ProgramModule {
 public:
  explicit ProgramModule(const tvm::ffi::Module& module) : module_(module) {}

  [[nodiscard]] ProgramKey key(int device_id) const {
    const DeviceInfo& info = device_at(device_id).info();
    return {info.platform + "\n" + info.name + "\n" + info.version, info.driver,
            call(kProgramDigestFunction, device_id).cast<std::string>()};
  }
  // As OpenClModule::built_ins says.
  [[nodiscard]] std::string built_ins(int device_id) const {
    return call(kBuiltInsFunction, device_id).cast<std::string>();
  }
  // Whether the driver took them: it has the last word.
  [[nodiscard]] bool load(const std::string& binaries, int device_id) const {
    try {
      call(kLoadProgramsFunction, tvm::ffi::Bytes(binaries), device_id);
      return true;
    } catch (const tvm::ffi::Error&) {
      return false;
    }
  }
  [[nodiscard]] tvm::ffi::json::Object build(int device_id) const {
    return call(kBuildAllFunction, device_id).cast<tvm::ffi::json::Object>();
  }
  [[nodiscard]] tvm::ffi::Bytes save(int device_id) const {
    return call(kSaveProgramsFunction, device_id).cast<tvm::ffi::Bytes>();
  }

 private:
  template <typename... Args>
  tvm::ffi::Any call(const char* name, Args... args) const {
    return module_->GetFunction(name).value()(std::move(args)...);
  }

  const tvm::ffi::Module& module_;
};

}  // namespace adrenoc_runtime::opencl
