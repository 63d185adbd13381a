// Collects when each kernel ran.
#ifndef ADRENOC_NATIVE_PROFILER_H_
#define ADRENOC_NATIVE_PROFILER_H_

#include <tvm/ffi/extra/json.h>

#include <string>
#include <vector>

#include "cl_api.h"

namespace adrenoc {
namespace opencl {

class Profiler {
 public:
  [[nodiscard]] bool is_recording() const { return recording_; }
  void start();
  void record(const std::string& kernel, EventHandle event);
  // All commands must have ended.  Returns [kernel, start_ns, end_ns] of each launch, in order;
  // the times are the device's own clock.
  [[nodiscard]] tvm::ffi::json::Array stop();

 private:
  struct Launch {
    std::string kernel;
    EventHandle event;
  };
  bool recording_ = false;
  std::vector<Launch> launches_;
};

// One time stamp (CL_PROFILING_COMMAND_...) of an event that has ended, in ns.
[[nodiscard]] cl_ulong event_time_ns(cl_event event, cl_uint stamp);

}  // namespace opencl
}  // namespace adrenoc

#endif  // ADRENOC_NATIVE_PROFILER_H_
