#include "modules/program_build.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/typed_function.h"
#include "files/mapped_file.h"
#include "modules/module.h"
#include "opencl/device.h"

namespace adrenoc_runtime {
namespace opencl {
namespace {

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

// What a peer passes to have no cache at all.
constexpr const char* kNoFolder = "none";

// Functions of a module by name, because module classes that come from a library carry no C++ type
// information.
class ProgramModule {
 public:
  explicit ProgramModule(const ffi::Module& module) : module_(module) {}

  [[nodiscard]] ProgramKey key(int device_id) const {
    const DeviceInfo& info = device_at(device_id).info();
    return {info.platform + "\n" + info.name + "\n" + info.version, info.driver,
            call(kProgramDigestFunction, device_id).cast<std::string>()};
  }
  // Whether the driver took them: it has the last word.
  [[nodiscard]] bool load(const std::string& binaries, int device_id) const {
    try {
      call(kLoadProgramsFunction, ffi::Bytes(binaries), device_id);
      return true;
    } catch (const ffi::Error&) {
      return false;
    }
  }
  [[nodiscard]] json::Object build(int device_id) const {
    return call(kBuildAllFunction, device_id).cast<json::Object>();
  }
  [[nodiscard]] ffi::Bytes save(int device_id) const {
    return call(kSaveProgramsFunction, device_id).cast<ffi::Bytes>();
  }

 private:
  template <typename... Args>
  ffi::Any call(const char* name, Args... args) const {
    return module_->GetFunction(name).value()(std::move(args)...);
  }

  const ffi::Module& module_;
};

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

// The sets of kernels in `module`: its own and those of its imports.
void collect(const ffi::Module& module, std::vector<ffi::Module>* found) {
  if (std::string_view(module->kind()) == "opencl") found->push_back(module);
  for (const ffi::Any& import : module->imports()) collect(import.cast<ffi::Module>(), found);
}

// The names of the files that a cache has for `module`, as JSON.
ffi::String program_names(const ffi::Module& module, int device_id) {
  std::vector<ffi::Module> sets;
  collect(module, &sets);
  json::Array names;
  for (const ffi::Module& set : sets) {
    names.push_back(ffi::String(ProgramModule(set).key(device_id).file_name()));
  }
  return json::Stringify(names);
}

// The content of one of them, of kernels that are built now if they were not.
ffi::Bytes program_file(const ffi::Module& module, int device_id, const ffi::String& name) {
  std::vector<ffi::Module> sets;
  collect(module, &sets);
  for (const ffi::Module& set : sets) {
    const ProgramModule programs(set);
    const ProgramKey key = programs.key(device_id);
    if (key.file_name() != std::string(name)) continue;
    const ffi::Bytes binaries = programs.save(device_id);
    return ffi::Bytes(programs_file(key, {binaries.data(), binaries.size()}));
  }
  TVM_FFI_THROW(ValueError) << "The module has no set of kernels " << name;
  TVM_FFI_UNREACHABLE();
}

// Builds that run in the background, by number.
struct Builds {
  std::mutex mutex;
  std::string folder;
  int64_t next = 1;
  std::map<int64_t, std::future<BuildReport>> running;
};

Builds& builds() {
  static auto* all = new Builds();
  return *all;
}

// The file of a folder whose name the cache asks for; kept mapped until the build ends.
std::optional<std::string_view> read_embedded(const std::string& folder, const std::string& name,
                                              std::map<std::string, MappedFile>* mapped) {
  try {
    return mapped->try_emplace(name, folder + "/" + name).first->second.content();
  } catch (const Failure&) {
    return std::nullopt;
  }
}

int64_t build_start(const ffi::Module& module, int device_id, const ffi::String& folder,
                    const ffi::String& embedded, bool qualcomm_rule) {
  Builds& all = builds();
  const std::lock_guard<std::mutex> lock(all.mutex);
  ProgramSources sources;
  sources.folder = folder.empty() ? all.folder : std::string(folder);
  if (sources.folder == kNoFolder) sources.folder.clear();
  sources.rule = qualcomm_rule ? DriverRule::kQualcomm : DriverRule::kSame;
  if (!embedded.empty()) {
    auto mapped = std::make_shared<std::map<std::string, MappedFile>>();
    sources.embedded = [mapped, place = std::string(embedded)](const std::string& name) {
      return read_embedded(place, name, mapped.get());
    };
  }
  const int64_t number = all.next++;
  all.running[number] = std::async(std::launch::async, [module, device_id, sources] {
    return build_programs(module, device_id, sources);
  });
  return number;
}

// Whether a build has ended, after waiting for at most `wait_ms`.
bool build_is_done(int64_t number, int64_t wait_ms) {
  Builds& all = builds();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.running.find(number);
  if (found == all.running.end()) TVM_FFI_THROW(ValueError) << "There is no build " << number;
  return found->second.wait_for(std::chrono::milliseconds(wait_ms)) == std::future_status::ready;
}

ffi::String build_finish(int64_t number) {
  Builds& all = builds();
  std::future<BuildReport> build;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.running.find(number);
    if (found == all.running.end()) {
      TVM_FFI_THROW(ValueError) << "There is no build " << number;
    }
    build = std::move(found->second);
    all.running.erase(found);
  }
  return json::Stringify(build.get().to_json());
}

}  // namespace

json::Object BuildReport::to_json() const {
  json::Object object;
  object.Set(ffi::String("times_ms"), times_ms);
  object.Set(ffi::String("hits"), static_cast<int64_t>(hits));
  object.Set(ffi::String("misses"), static_cast<int64_t>(misses));
  object.Set(ffi::String("damaged"), static_cast<int64_t>(damaged));
  object.Set(ffi::String("unsaved"), ffi::String(unsaved));
  return object;
}

BuildReport build_programs(const ffi::Module& module, int device_id,
                           const ProgramSources& sources) {
  std::vector<ffi::Module> sets;
  collect(module, &sets);
  BuildReport report;
  for (const ffi::Module& set : sets) build_one(set, device_id, sources, &report);
  return report;
}

void set_program_folder(const std::string& folder) {
  Builds& all = builds();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.folder = folder;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  publish("adrenoc.opencl.build_start", build_start);
  publish("adrenoc.opencl.build_is_done", build_is_done);
  publish("adrenoc.opencl.build_finish", build_finish);
  publish("adrenoc.opencl.program_names", program_names);
  publish("adrenoc.opencl.program_file", program_file);
}

}  // namespace opencl
}  // namespace adrenoc_runtime
