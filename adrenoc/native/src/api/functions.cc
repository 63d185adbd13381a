// The functions "adrenoc.opencl.*" that Python and RPC clients call; apps have none of them.
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/function.h>

#include <string>

#include "base/typed_function.h"
#include "modules/module.h"
#include "opencl/cl_api.h"
#include "opencl/device.h"
#include "opencl/diagnosis.h"
#include "opencl/hints.h"
#include "opencl/profiler.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

ffi::String devices() {
  json::Array list;
  for (const auto& device : all_devices()) list.push_back(device->info().to_json());
  return json::Stringify(list);
}

void build_imports(const ffi::Module& module, int device_id, json::Object* times_ms) {
  // Asked by name, because TVM's modules share one type id, and those that are linked with LLVM
  // carry no C++ type information.
  if (std::string(module->kind()) == "opencl") {
    if (const auto build = module->GetFunction(kBuildAllFunction)) {
      for (const auto& [name, time_ms] : (*build)(device_id).cast<json::Object>()) {
        times_ms->Set(name, time_ms);
      }
    }
  }
  for (const ffi::Any& import : module->imports()) {
    build_imports(import.cast<ffi::Module>(), device_id, times_ms);
  }
}

ffi::String build_all(const ffi::Module& module, int device_id) {
  json::Object times_ms;
  build_imports(module, device_id, &times_ms);
  return json::Stringify(times_ms);
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  publish("adrenoc.opencl.set_library", [](const ffi::String& path) { set_library(path); });
  publish("adrenoc.opencl.library", [] { return ffi::String(library_path()); });
  publish("adrenoc.opencl.devices", devices);
  publish("adrenoc.opencl.absent_devices", [] { return ffi::String(absent_devices()); });
  publish("adrenoc.opencl.memory_stats",
          [](int device_id) { return json::Stringify(device_at(device_id).memory().stats()); });
  publish("adrenoc.opencl.api_calls", [] { return static_cast<int64_t>(api_calls()); });
  publish("adrenoc.opencl.release_pool",
          [](int device_id) { device_at(device_id).memory().release_pool(); });
  publish("adrenoc.opencl.profile_start", start_profiling);
  publish("adrenoc.opencl.profile_stop", stop_profiling);
  publish("adrenoc.opencl.build_all", build_all);
  publish("adrenoc.opencl.diagnose",
          [](int device_id) { return json::Stringify(diagnose(device_at(device_id)).to_json()); });
  publish("adrenoc.opencl.set_hints", [](const ffi::String& performance,
                                         const ffi::String& priority) {
    set_hints({level_of(performance), level_of(priority)});
  });
  publish("adrenoc.opencl.hints", [](int device_id) {
    return json::Stringify(to_json(device_at(device_id).hint_uses()));
  });
}

}  // namespace adrenoc_runtime::opencl
