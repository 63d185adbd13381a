// The functions "adrenoc.opencl.*" that Python and RPC clients call; apps have none of them.
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/timer.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include "base/machine.h"
#include "base/typed_function.h"
#include "modules/program_build.h"
#include "opencl/cl_api.h"
#include "opencl/device.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

ffi::String devices() {
  json::Array list;
  for (const auto& device : all_devices()) list.push_back(device->info().to_json());
  return json::Stringify(list);
}

ffi::String build_all(const ffi::Module& module, int device_id) {
  json::Object times_ms;
  for (const ffi::Module& set : modules_of(module, "opencl")) {
    for (const auto& [name, time_ms] : ProgramModule(set).build(device_id)) {
      times_ms.Set(name, time_ms);
    }
  }
  return json::Stringify(times_ms);
}

struct Fact {
  const char* key;
  const char* file;
  bool is_number;
};

// Linux's driver for Adreno GPUs is named kgsl.
constexpr const char* kGpuFolder = "/class/kgsl/kgsl-3d0/";
constexpr Fact kFacts[] = {
    {"model", "gpu_model", false},        {"clock_hz", "gpuclk", true},
    {"max_clock_hz", "max_gpuclk", true}, {"governor", "devfreq/governor", false},
    {"temperature_mc", "temp", true},     {"busy", "gpu_busy_percentage", false},
};

// Clock, temperature and governor of an Adreno, each only where the file of that fact can be read,
// so nothing without one; `root` is "/sys".
json::Object gpu_state(const std::string& root) {
  json::Object state;
  for (const Fact& fact : kFacts) {
    std::ifstream stream(root + kGpuFolder + fact.file);
    std::string line;
    if (!std::getline(stream, line) || line.empty()) continue;
    char* end = nullptr;
    const long long number = std::strtoll(line.c_str(), &end, 10);
    if (!fact.is_number) {
      state.Set(ffi::String(fact.key), ffi::String(line));
    } else if (end != line.c_str()) {
      state.Set(ffi::String(fact.key), static_cast<int64_t>(number));
    }
  }
  return state;
}

// A command that does nothing but tell when the queue came to it.
EventHandle mark(Device& device) {
  const QueueLock queue = device.lock_queue();
  cl_event event = nullptr;
  ADRENOC_CL_CALL(clEnqueueMarkerWithWaitList, queue.get(), 0, nullptr, &event);
  return EventHandle(event);
}

// Once a device has been timed its queue keeps recording times: making a new queue for every
// measurement would take longer than many of them.
void keep_profiling(Device& device) {
  static std::mutex mutex;
  static std::set<const Device*> profiled;
  std::lock_guard<std::mutex> lock(mutex);
  if (profiled.insert(&device).second) device.want_profiling(true);
}

class OpenClTimerNode final : public tvm::runtime::TimerNode {
 public:
  explicit OpenClTimerNode(tvm::Device device) : device_(device_at(device.device_id)) {}

  void Start() final {
    keep_profiling(device_);
    device_.finish();
    start_ = mark(device_);
  }
  void Stop() final { stop_ = mark(device_); }
  int64_t SyncAndGetElapsedNanos() final {
    device_.finish();
    return static_cast<int64_t>(event_time_ns(stop_.get(), CL_PROFILING_COMMAND_END) -
                                event_time_ns(start_.get(), CL_PROFILING_COMMAND_END));
  }

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("adrenoc.OpenClTimer", OpenClTimerNode,
                                    tvm::runtime::TimerNode);

 private:
  Device& device_;
  EventHandle start_;
  EventHandle stop_;
};

tvm::runtime::Timer make_timer(tvm::Device device) {
  return tvm::runtime::Timer(ffi::make_object<OpenClTimerNode>(device));
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  publish("adrenoc.opencl.set_library", set_library);
  publish("adrenoc.opencl.library", library_path);
  publish("adrenoc.opencl.devices", devices);
  publish("adrenoc.opencl.absent_devices", absent_devices);
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
  publish("adrenoc.opencl.set_hints",
          [](const ffi::String& performance, const ffi::String& priority) {
            set_hints({level_of(performance), level_of(priority)});
          });
  publish("adrenoc.runtime.version", stamp);
  publish("adrenoc.runtime.machine", [] { return ffi::String(kMachine); });
  publish("adrenoc.runtime.gpu_state",
          [](const std::string& root) { return json::Stringify(gpu_state(root)); });
  // How TVM's time_evaluator measures: TVM 0.27 asks for the first name, older ones for the second.
  publish("runtime.timer.opencl", make_timer);
  publish("profiling.timer.opencl", make_timer);
  publish("adrenoc.opencl.hints",
          [](int device_id) { return json::Stringify(to_json(device_at(device_id).hint_uses())); });
}

}  // namespace adrenoc_runtime::opencl
