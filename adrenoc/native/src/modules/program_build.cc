#include "modules/program_build.h"

#include <new>

#include "base/typed_function.h"
#include "modules/built_ins.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

// Keeps what was built.  The kernels are there: whatever goes wrong, it costs the next start alone.
// Returns what went wrong, or nothing.
std::string save(const ProgramModule& programs, int device_id, const ProgramCache& cache,
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

void build_one(const ffi::Module& module, int device_id, const ProgramSources& sources,
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

}  // namespace

json::Object BuildReport::to_json() const {
  json::Object object;
  object.Set(ffi::String("times_ms"), times_ms);
  object.Set(ffi::String("hits"), static_cast<int64_t>(hits));
  object.Set(ffi::String("misses"), static_cast<int64_t>(misses));
  object.Set(ffi::String("damaged"), static_cast<int64_t>(damaged));
  object.Set(ffi::String("unsaved"), ffi::String(unsaved));
  object.Set(ffi::String("built_ins"), ffi::String(built_ins));
  return object;
}

BuildReport build_programs(const ffi::Module& module, int device_id,
                           const ProgramSources& sources) {
  BuildReport report;
  for (const ffi::Module& set : modules_of(module, "opencl"))
    build_one(set, device_id, sources, &report);
  return report;
}

}  // namespace adrenoc_runtime::opencl
