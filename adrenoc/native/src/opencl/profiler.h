// Collects when each kernel ran.
#pragma once

#include <tvm/ffi/extra/json.h>

#include <string>
#include <vector>

#include "opencl/cl_api.h"

namespace adrenoc_runtime::opencl {

struct KernelLaunch {
  std::string kernel;
  EventHandle event;
  // Of what has no event of its own; by the host's clock.
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

// [kernel, start_ns, end_ns] of each launch, by the device's own clock.  All must have ended.
[[nodiscard]] tvm::ffi::json::Array launch_times(const std::vector<KernelLaunch>& launches);

class Profiler {
 public:
  [[nodiscard]] bool is_recording() const { return recording_; }
  void start();
  void record(const std::string& kernel, EventHandle event);
  void record_span(const std::string& name, int64_t start_ns, int64_t end_ns);
  // Returns the launches since start(), in order.
  [[nodiscard]] std::vector<KernelLaunch> stop();

 private:
  bool recording_ = false;
  std::vector<KernelLaunch> launches_;
};

// All that a device launches is noted from now on; JSON of that, which ends it.
void start_profiling(int device_id);
[[nodiscard]] tvm::ffi::String stop_profiling(int device_id);

// One time stamp (CL_PROFILING_COMMAND_...) of an event that has ended, in ns.
[[nodiscard]] cl_ulong event_time_ns(cl_event event, cl_uint stamp);

}  // namespace adrenoc_runtime::opencl
