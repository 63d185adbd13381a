#include "opencl/profiler.h"

#include <tvm/ffi/error.h>

#include <utility>

#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

void Profiler::start() {
  if (recording_) {
    TVM_FFI_THROW(RuntimeError) << "Profiling has already been started on this device";
  }
  launches_.clear();
  recording_ = true;
}

void Profiler::record(const std::string& kernel, EventHandle event) {
  launches_.push_back({kernel, std::move(event)});
}

void Profiler::record_span(const std::string& name, int64_t start_ns, int64_t end_ns) {
  launches_.push_back({name, EventHandle(), start_ns, end_ns});
}

std::vector<KernelLaunch> Profiler::stop() {
  if (!recording_) {
    TVM_FFI_THROW(RuntimeError) << "Profiling has not been started on this device";
  }
  recording_ = false;
  return std::exchange(launches_, {});
}

tvm::ffi::json::Array launch_times(const std::vector<KernelLaunch>& launches) {
  tvm::ffi::json::Array times;
  for (const KernelLaunch& launch : launches) {
    const cl_event event = launch.event.get();
    tvm::ffi::json::Array entry;
    entry.push_back(tvm::ffi::String(launch.kernel));
    const bool timed = event != nullptr;
    entry.push_back(timed ? static_cast<int64_t>(event_time_ns(event, CL_PROFILING_COMMAND_START))
                          : launch.start_ns);
    entry.push_back(timed ? static_cast<int64_t>(event_time_ns(event, CL_PROFILING_COMMAND_END))
                          : launch.end_ns);
    times.push_back(entry);
  }
  return times;
}

void start_profiling(int device_id) {
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

tvm::ffi::String stop_profiling(int device_id) {
  Device& device = device_at(device_id);
  device.finish();
  std::vector<KernelLaunch> launches;
  {
    const QueueLock queue = device.lock_queue();
    launches = device.profiler().stop();
  }
  device.want_profiling(false);
  return tvm::ffi::json::Stringify(launch_times(launches));
}

cl_ulong event_time_ns(cl_event event, cl_uint stamp) {
  cl_ulong time_ns = 0;
  ADRENOC_CL_CALL(clGetEventProfilingInfo, event, stamp, sizeof(time_ns), &time_ns, nullptr);
  return time_ns;
}

}  // namespace adrenoc_runtime::opencl
