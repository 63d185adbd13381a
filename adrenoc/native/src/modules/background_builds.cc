// Builds that Python and RPC clients start, ask for and end by number, and the files that they
// make.
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <utility>

#include "base/failure.h"
#include "base/typed_function.h"
#include "files/file.h"
#include "modules/program_build.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

// What a peer passes to have no cache at all.
constexpr const char* kNoFolder = "none";

// The names of the files that a cache has for `module`, as JSON.
ffi::String program_names(const ffi::Module& module, int device_id) {
  json::Array names;
  for (const ffi::Module& set : modules_of(module, "opencl")) {
    names.push_back(ffi::String(ProgramModule(set).key(device_id).file_name()));
  }
  return json::Stringify(names);
}

// The content of one of them, of kernels that are built now if they were not.
ffi::Bytes program_file(const ffi::Module& module, int device_id, const ffi::String& name) {
  for (const ffi::Module& set : modules_of(module, "opencl")) {
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

// Of `all`, which is locked.
std::map<int64_t, std::future<BuildReport>>::iterator find_build(Builds* all, int64_t number) {
  const auto found = all->running.find(number);
  if (found == all->running.end()) TVM_FFI_THROW(ValueError) << "There is no build " << number;
  return found;
}

// Whether a build has ended, after waiting for at most `wait_ms`.
bool build_is_done(int64_t number, int64_t wait_ms) {
  Builds& all = builds();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return find_build(&all, number)->second.wait_for(std::chrono::milliseconds(wait_ms)) ==
         std::future_status::ready;
}

ffi::String build_finish(int64_t number) {
  Builds& all = builds();
  std::future<BuildReport> build;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = find_build(&all, number);
    build = std::move(found->second);
    all.running.erase(found);
  }
  return json::Stringify(build.get().to_json());
}

}  // namespace

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

}  // namespace adrenoc_runtime::opencl
