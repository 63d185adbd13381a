#include "replay.h"

#include <tvm/ffi/error.h>

#include <utility>

#include "trace.h"

namespace adrenoc {
namespace opencl {

KeptLaunches::KeptLaunches(Device& device, const std::vector<CapturedLaunch>& launches)
    : device_(device) {
  for (const CapturedLaunch& captured : launches) {
    Launch launch{captured.kernel->new_handle(), &captured.kernel->name(), captured.work};
    for (size_t i = 0; i < captured.arguments.size(); ++i) {
      set_kernel_argument(launch.handle.get(), *launch.name, i, captured.arguments[i].get());
    }
    launches_.push_back(std::move(launch));
  }
}

void KeptLaunches::set_argument(size_t launch, size_t index, const KernelArgument& argument) {
  const Launch& changed = launches_[launch];
  set_kernel_argument(changed.handle.get(), *changed.name, index, argument);
}

void KeptLaunches::enqueue(cl_command_queue queue) {
  Profiler& profiler = device_.profiler();
  const bool timed = profiler.is_recording();
  for (const Launch& launch : launches_) {
    trace("launching kernel", *launch.name);
    cl_event event = nullptr;
    const cl_int code = api().clEnqueueNDRangeKernel(
        queue, launch.handle.get(), launch.work.dimensions, nullptr, launch.work.global.data(),
        launch.work.local.data(), 0, nullptr, timed ? &event : nullptr);
    if (code != CL_SUCCESS) {
      TVM_FFI_THROW(RuntimeError) << "Launch of kernel " << *launch.name
                                  << ": clEnqueueNDRangeKernel failed with " << error_name(code);
    }
    if (timed) profiler.record(*launch.name, EventHandle(event));
    device_.launched(queue, 1);
  }
}

}  // namespace opencl
}  // namespace adrenoc
