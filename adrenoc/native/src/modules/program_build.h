// Builds the kernels of a module: from a cache or from source, on several threads, in the
// background if asked.
#pragma once

#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// The sets of kernels in `module`: its own and those of its imports.
[[nodiscard]] std::vector<tvm::ffi::Module> program_sets(const tvm::ffi::Module& module);

// Builds what `module` and its imports hold.  Throws RuntimeError with the compiler's log.
[[nodiscard]] BuildReport build_programs(const tvm::ffi::Module& module, int device_id,
                                         const ProgramSources& sources);

// The folder that "adrenoc.opencl.build_start" takes when it is given none.
void set_program_folder(const std::string& folder);

}  // namespace adrenoc_runtime::opencl
