// Builds the kernels of a module: from a cache or from source, on several threads, in the
// background if asked.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "modules/module.h"
#include "opencl/device.h"
#include "programs/program_cache.h"

namespace adrenoc_runtime::opencl {

struct ProgramSources {
  // Where built kernels are kept; empty for nowhere.
  std::string folder;
  // Finds a file of built kernels that came with the bundle, by its name.
  std::function<std::optional<std::string_view>(const std::string& name)> embedded;
  DriverRule rule = DriverRule::kSame;
};

// Counted in kernels.
struct BuildReport {
  tvm::ffi::json::Object times_ms;  // by kernel; 0 for one that was there or came from the cache
  uint32_t hits = 0;
  uint32_t misses = 0;
  uint32_t damaged = 0;  // of the misses: an entry was there and could not be used
  // Why what was built is not kept for the next start; "" where it is, or was not to be.
  std::string unsaved;
  // What became of built-ins that drivers do not tell of; "" where kernels ask for none.
  std::string built_ins;

  [[nodiscard]] tvm::ffi::json::Object to_json() const;
};

// Builds what `module` and its imports hold.  Throws RuntimeError with the compiler's log.
[[nodiscard]] BuildReport build_programs(const tvm::ffi::Module& module, int device_id,
                                         const ProgramSources& sources);

// The folder that "adrenoc.opencl.build_start" takes when it is given none.
void set_program_folder(const std::string& folder);

// A set of kernels: functions of a module of kind "opencl" by their names.
class ProgramModule {
 public:
  explicit ProgramModule(const tvm::ffi::Module& module) : module_(module) {}

  [[nodiscard]] ProgramKey key(int device_id) const {
    const DeviceInfo& info = device_at(device_id).info();
    return {info.key(), info.driver, call(kProgramDigestFunction, device_id).cast<std::string>()};
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
