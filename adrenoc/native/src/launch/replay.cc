#include "launch/replay.h"

#include <tvm/ffi/error.h>

#include <cstdio>
#include <utility>

#include "files/trace.h"
#include "launch/cancelling.h"

namespace adrenoc_runtime::opencl {

namespace {

// A step may need the queue itself.
void run_step(Device& device, QueueLock& queue, const CapturedStep& step) {
  queue.unlock();
  try {
    step.again();
  } catch (...) {
    queue = device.lock_queue();
    throw;
  }
  queue = device.lock_queue();
}

class Ranges final : public Replay {
 public:
  // The first part comes before the first step; null is a range of no launches.
  Ranges(Device& device, std::vector<std::unique_ptr<Replay>> parts,
         const std::vector<CapturedStep>& steps)
      : device_(device), parts_(std::move(parts)), steps_(steps) {}

  [[nodiscard]] const char* name() const final {
    for (const auto& part : parts_) {
      if (part != nullptr) return part->name();
    }
    return "";
  }

  void enqueue(QueueLock& queue) final {
    const uint64_t number = device_.queue_number();
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i] != nullptr) parts_[i]->enqueue(queue);
      if (i == steps_.size()) break;
      run_step(device_, queue, steps_[i]);
      if (device_.queue_number() != number) {
        TVM_FFI_THROW(RuntimeError) << "the device's queue was exchanged during a run";
      }
    }
  }

 private:
  Device& device_;
  const std::vector<std::unique_ptr<Replay>> parts_;
  const std::vector<CapturedStep>& steps_;
};

}  // namespace

KeptLaunches::KeptLaunches(Device& device, const std::vector<CapturedLaunch>& launches,
                           const std::vector<CapturedStep>& steps)
    : device_(device), steps_(steps), pacing_(launches.size()) {
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

void KeptLaunches::enqueue(QueueLock& queue) {
  auto step = steps_.begin();
  for (size_t done = 0;; ++done) {
    for (; step != steps_.end() && step->launches_before == done; ++step) {
      run_step(device_, queue, *step);
    }
    if (done == launches_.size()) return;
    launch(queue.get(), launches_[done]);
  }
}

void KeptLaunches::enqueue_paced(QueueLock& queue, double limit_ms) {
  pacing_.begin(queue.get());
  auto step = steps_.begin();
  for (size_t done = 0;; ++done) {
    for (; step != steps_.end() && step->launches_before == done; ++step) {
      pacing_.end_piece(queue.get(), done);
      end_within_if_cancelled();
      run_step(device_, queue, *step);
      pacing_.begin_piece();
    }
    if (done == launches_.size()) return;
    end_within_if_cancelled();
    launch(queue.get(), launches_[done]);
    if (!pacing_.after(queue.get(), done, limit_ms)) continue;
    queue.unlock();
    queue = device_.lock_queue();
    pacing_.begin_piece();
  }
}

std::string KeptLaunches::beyond(double limit_ms) const {
  const size_t longest = pacing_.longest_launch();
  if (launches_.empty() || pacing_.ms_of(longest) <= limit_ms) return "";
  char text[64];
  (void)std::snprintf(text, sizeof(text), " takes %.3f ms by itself, more than the ceiling of %.3f ms",
                      pacing_.ms_of(longest), limit_ms);
  return "kernel " + *launches_[longest].name + text;
}

void KeptLaunches::launch(cl_command_queue queue, const Launch& launch) {
  Profiler& profiler = device_.profiler();
  const bool timed = profiler.is_recording();
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

std::unique_ptr<Replay> record_ranges(Device& device, cl_command_queue queue,
                                      const KeptLaunches& kept, Record* record) {
  const KeptLaunches::Launch* const all = kept.launches().data();
  if (kept.steps().empty()) return record(device, queue, {all, all + kept.launches().size()});
  std::vector<std::unique_ptr<Replay>> parts;
  size_t done = 0;
  const auto add_until = [&](size_t end) {
    parts.push_back(done == end ? nullptr : record(device, queue, {all + done, all + end}));
    done = end;
  };
  for (const CapturedStep& step : kept.steps()) add_until(step.launches_before);
  add_until(kept.launches().size());
  return std::make_unique<Ranges>(device, std::move(parts), kept.steps());
}

}  // namespace adrenoc_runtime::opencl
