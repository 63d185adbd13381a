// The functions "adrenoc.opencl.*" that Python and apps call.
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/function.h>

#include <string>
#include <vector>

#include "base/typed_function.h"
#include "modules/module.h"
#include "opencl/cl_api.h"
#include "opencl/device.h"

namespace adrenoc_runtime {
namespace opencl {
namespace {

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

ffi::String devices() {
  json::Array list;
  for (const auto& device : all_devices()) list.push_back(device->info().to_json());
  return json::Stringify(list);
}

void profile_start(int device_id) {
  Device& device = device_at(device_id);
  device.want_profiling(true);
  try {
    const QueueLock queue = device.lock_queue();
    device.profiler().start();
  } catch (...) {
    device.want_profiling(false);
    throw;
  }
}

ffi::String profile_stop(int device_id) {
  Device& device = device_at(device_id);
  device.finish();
  std::vector<KernelLaunch> launches;
  {
    const QueueLock queue = device.lock_queue();
    launches = device.profiler().stop();
  }
  device.want_profiling(false);
  return json::Stringify(launch_times(launches));
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
  publish("adrenoc.opencl.profile_start", profile_start);
  publish("adrenoc.opencl.profile_stop", profile_stop);
  publish("adrenoc.opencl.build_all", build_all);
}

}  // namespace opencl
}  // namespace adrenoc_runtime
