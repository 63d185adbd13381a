// Builds the kernels of a module: from a cache or from source, on several threads, in the
// background if asked.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>

#include <functional>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/typed_function.h"
#include "modules/built_ins.h"
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

namespace ffi = tvm::ffi;

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

  [[nodiscard]] tvm::ffi::json::Object to_json() const {
    json::Object object;
    object.Set(ffi::String("times_ms"), times_ms);
    object.Set(ffi::String("hits"), static_cast<int64_t>(hits));
    object.Set(ffi::String("misses"), static_cast<int64_t>(misses));
    object.Set(ffi::String("damaged"), static_cast<int64_t>(damaged));
    object.Set(ffi::String("unsaved"), ffi::String(unsaved));
    object.Set(ffi::String("built_ins"), ffi::String(built_ins));
    return object;
  }
};

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

namespace json = tvm::ffi::json;

// Keeps what was built.  The kernels are there: whatever goes wrong, it costs the next start alone.
// Returns what went wrong, or nothing.
inline std::string save(const ProgramModule& programs, int device_id, const ProgramCache& cache,
                        const ProgramKey& key) {
  try {
    const ffi::Bytes binaries = programs.save(device_id);
    return cache.store(key, {binaries.data(), binaries.size()});
  } catch (const ffi::Error& error) {
    return "the driver does not give them: " + error.message();
  } catch (const std::bad_alloc&) {
    return "no memory is left on the host for them";
  }
}

inline void build_one(const ffi::Module& module, int device_id, const ProgramSources& sources,
                      BuildReport* report) {
  const ProgramModule programs(module);
  if (!sources.folder.empty()) keep_trials_in(sources.folder);
  const std::string built_ins = programs.built_ins(device_id);
  if (!built_ins.empty()) report->built_ins = built_ins;
  const ProgramKey key = programs.key(device_id);
  const ProgramCache cache(sources.folder);
  FoundPrograms found;
  if (!sources.folder.empty()) found = cache.find(key, sources.rule);
  bool is_hit = found.binaries.has_value() && programs.load(*found.binaries, device_id);
  bool is_damaged = found.is_damaged || (found.binaries.has_value() && !is_hit);
  if (!is_hit && sources.embedded) {
    if (const auto file = sources.embedded(key.file_name())) {
      const FoundPrograms embedded = read_programs(*file, key, sources.rule);
      is_hit = embedded.binaries.has_value() && programs.load(*embedded.binaries, device_id);
      is_damaged = is_damaged || !is_hit;
    }
  }
  const json::Object times_ms = programs.build(device_id);
  const auto kernels = static_cast<uint32_t>(times_ms.size());
  for (const auto& [name, time_ms] : times_ms) report->times_ms.Set(name, time_ms);
  (is_hit ? report->hits : report->misses) += kernels;
  if (is_damaged && !is_hit) report->damaged += kernels;
  if (is_hit || sources.folder.empty()) return;
  const std::string unsaved = save(programs, device_id, cache, key);
  if (!unsaved.empty()) report->unsaved = unsaved;
}

// Builds what `module` and its imports hold.  Throws RuntimeError with the compiler's log.
[[nodiscard]] inline BuildReport build_programs(const tvm::ffi::Module& module, int device_id,
                                                const ProgramSources& sources) {
  BuildReport report;
  for (const ffi::Module& set : modules_of(module, "opencl"))
    build_one(set, device_id, sources, &report);
  return report;
}

// The folder that "adrenoc.opencl.build_start" takes when it is given none.
void set_program_folder(const std::string& folder);

}  // namespace adrenoc_runtime::opencl
