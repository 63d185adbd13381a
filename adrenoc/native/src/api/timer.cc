// How TVM's time_evaluator measures on an OpenCL device: by the device's own clock.
#include <tvm/ffi/function.h>
#include <tvm/runtime/timer.h>

#include <set>

#include "base/typed_function.h"
#include "opencl/device.h"

namespace adrenoc_runtime::opencl {
namespace {

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
  return tvm::runtime::Timer(tvm::ffi::make_object<OpenClTimerNode>(device));
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  // TVM 0.27 asks for the first name, older ones for the second.
  publish("runtime.timer.opencl", make_timer);
  publish("profiling.timer.opencl", make_timer);
}

}  // namespace adrenoc_runtime::opencl
