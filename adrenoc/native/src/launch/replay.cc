#include "launch/replay.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/stopwatch.h"
#include "base/utf8.h"
#include "files/file.h"
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

constexpr size_t kRunsOfEach = 2;

// What a recording has to be slower by, in both, to lose: less is noise.
constexpr double kSlowerFactor = 1.1;
constexpr double kSlowerMs = 0.05;

std::string ms_text(double ms) { return number_text("%.3f ms", ms); }

constexpr const char* kExtension = "cl_khr_command_buffer";

// A property of command buffers; 0 where the device does not know it.
cl_bitfield buffer_property(cl_device_id device, cl_uint what) {
  cl_bitfield value = 0;
  const cl_int code = api().clGetDeviceInfo(device, what, sizeof(value), &value, nullptr);
  return code == CL_SUCCESS ? value : 0;
}

class CommandBuffer {
 public:
  CommandBuffer(const CommandBufferApi& functions, cl_command_queue queue, bool shared,
                const LaunchRange& launches)
      : functions_(functions) {
    const std::array<cl_ulong, 3> flags = {CL_COMMAND_BUFFER_FLAGS,
                                           CL_COMMAND_BUFFER_SIMULTANEOUS_USE, 0};
    cl_int code = CL_SUCCESS;
    count_api_call();
    value_ = functions_.create_buffer(1, &queue, shared ? flags.data() : nullptr, &code);
    check(code, "clCreateCommandBufferKHR");
    try {
      fill(launches);
    } catch (...) {
      release();
      throw;
    }
  }
  CommandBuffer(CommandBuffer&& other) noexcept
      : functions_(other.functions_),
        value_(std::exchange(other.value_, nullptr)),
        running_(std::move(other.running_)) {}
  CommandBuffer(const CommandBuffer&) = delete;
  CommandBuffer& operator=(const CommandBuffer&) = delete;
  ~CommandBuffer() { release(); }

  // With `exclusive` it waits until the buffer's last use has ended.
  void enqueue(cl_command_queue queue, bool exclusive) {
    if (running_) {
      const cl_event event = running_.get();
      ADRENOC_CL_CALL(clWaitForEvents, 1, &event);
      running_ = EventHandle();
    }
    cl_event event = nullptr;
    count_api_call();
    const cl_int code = functions_.enqueue_buffer(1, &queue, value_, 0, nullptr,
                                                  exclusive ? &event : nullptr);
    check(code, "clEnqueueCommandBufferKHR");
    running_ = EventHandle(event);
  }

 private:
  void fill(const LaunchRange& launches) {
    // Each command waits for the one before, as in the queue: drivers differ in whether the order
    // of an in-order queue holds inside of a buffer.
    cl_uint before = 0;
    bool is_first = true;
    for (const KeptLaunches::Launch& launch : launches) {
      cl_uint point = 0;
      count_api_call();
      const cl_int code = functions_.add_kernel(
          value_, nullptr, nullptr, launch.handle.get(), launch.work.dimensions, nullptr,
          launch.work.global.data(), launch.work.local.data(), is_first ? 0 : 1,
          is_first ? nullptr : &before, &point, nullptr);
      check(code, "clCommandNDRangeKernelKHR");
      before = point;
      is_first = false;
    }
    count_api_call();
    check(functions_.finalize_buffer(value_), "clFinalizeCommandBufferKHR");
  }

  void release() {
    if (value_ == nullptr) return;
    count_api_call();
    // The object goes, whatever the driver answers.
    (void)functions_.release_buffer(value_);
    value_ = nullptr;
  }

  const CommandBufferApi functions_;
  cl_command_buffer value_ = nullptr;
  EventHandle running_;
};

class CommandBufferReplay final : public Replay {
 public:
  CommandBufferReplay(Device& device, size_t launches, bool exclusive,
                      std::vector<CommandBuffer> buffers)
      : device_(device),
        launches_(launches),
        exclusive_(exclusive),
        buffers_(std::move(buffers)) {}

  [[nodiscard]] const char* name() const final { return "a command buffer"; }

  void enqueue(QueueLock& queue) final {
    trace("replaying", name());
    buffers_[next_].enqueue(queue.get(), exclusive_);
    next_ = (next_ + 1) % buffers_.size();
    device_.launched(queue.get(), launches_);
  }

 private:
  Device& device_;
  const size_t launches_;
  const bool exclusive_;
  std::vector<CommandBuffer> buffers_;
  size_t next_ = 0;
};

constexpr const char* kRecordableQueues = "cl_qcom_recordable_queues";

class RecordingHandle {
 public:
  RecordingHandle(const RecordingApi& functions, cl_recording value)
      : functions_(functions), value_(value) {}
  RecordingHandle(RecordingHandle&& other) noexcept
      : functions_(other.functions_), value_(std::exchange(other.value_, nullptr)) {}
  RecordingHandle(const RecordingHandle&) = delete;
  RecordingHandle& operator=(const RecordingHandle&) = delete;
  ~RecordingHandle() {
    if (value_ == nullptr) return;
    count_api_call();
    (void)functions_.release_recording(value_);
  }
  [[nodiscard]] cl_recording get() const { return value_; }

 private:
  const RecordingApi functions_;
  cl_recording value_;
};

// The queue that records goes after what it recorded.
class RecordableQueueReplay final : public Replay {
 public:
  RecordableQueueReplay(Device& device, size_t launches, const RecordingApi& functions,
                        QueueHandle recorder)
      : device_(device),
        launches_(launches),
        functions_(functions),
        recorder_(std::move(recorder)) {}

  [[nodiscard]] const char* name() const final { return "a recordable queue"; }

  void record(const KeptLaunches::Launch* begin, const KeptLaunches::Launch* end) {
    cl_int code = CL_SUCCESS;
    count_api_call();
    const cl_recording value = functions_.new_recording(recorder_.get(), &code);
    check(code, "clNewRecordingQCOM");
    recordings_.emplace_back(functions_, value);
    for (const KeptLaunches::Launch* launch = begin; launch != end; ++launch) {
      ADRENOC_CL_CALL(clEnqueueNDRangeKernel, recorder_.get(), launch->handle.get(),
                      launch->work.dimensions, nullptr, launch->work.global.data(),
                      launch->work.local.data(), 0, nullptr, nullptr);
    }
    count_api_call();
    check(functions_.end_recording(value), "clEndRecordingQCOM");
  }

  void enqueue(QueueLock& queue) final {
    trace("replaying", name());
    for (const RecordingHandle& recording : recordings_) {
      count_api_call();
      const cl_int code =
          functions_.enqueue_recording(queue.get(), recording.get(), 0, nullptr, 0, nullptr, 0, nullptr,
                                       0, nullptr, 0, nullptr, nullptr);
      check(code, "clEnqueueRecordingQCOM");
    }
    device_.launched(queue.get(), launches_);
  }

 private:
  Device& device_;
  const size_t launches_;
  const RecordingApi functions_;
  const QueueHandle recorder_;
  std::vector<RecordingHandle> recordings_;
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
  return "kernel " + *launches_[longest].name + " takes " + ms_text(pacing_.ms_of(longest)) +
         " by itself, more than the ceiling of " + ms_text(limit_ms);
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

Trial::Trial(Replay& kept, std::vector<std::unique_ptr<Replay>> recorded) {
  const double unknown = std::numeric_limits<double>::infinity();
  ways_.push_back({&kept, nullptr, unknown, ""});
  for (std::unique_ptr<Replay>& replay : recorded) {
    Replay* plain = replay.get();
    ways_.push_back({plain, std::move(replay), unknown, ""});
  }
}

bool Trial::is_under_way() const { return runs_ < ways_.size() * kRunsOfEach; }

const char* Trial::run(QueueLock& queue) {
  Way& way = ways_[runs_ / kRunsOfEach];
  ADRENOC_CL_CALL(clFinish, queue.get());
  const Stopwatch watch;
  try {
    way.replay->enqueue(queue);
    ADRENOC_CL_CALL(clFinish, queue.get());
  } catch (const tvm::ffi::Error& error) {
    if (way.owned == nullptr) throw;
    way.failure = error.message();
    way.best_ms = std::numeric_limits<double>::infinity();
    runs_ = (runs_ / kRunsOfEach + 1) * kRunsOfEach;
    return nullptr;
  }
  way.best_ms = std::min(way.best_ms, watch.ms());
  ++runs_;
  return way.replay->name();
}

std::unique_ptr<Replay> Trial::take_best(std::string* reason) {
  const auto best =
      std::min_element(ways_.begin() + 1, ways_.end(),
                       [](const Way& a, const Way& b) { return a.best_ms < b.best_ms; });
  const double kept_ms = ways_.front().best_ms;
  reason->clear();
  if (best->failure.empty() && best->best_ms <= kept_ms * kSlowerFactor + kSlowerMs) {
    return std::move(best->owned);
  }
  for (size_t i = 1; i < ways_.size(); ++i) {
    if (i > 1) *reason += "; ";
    *reason += std::string(ways_[i].replay->name()) + ": " +
               (ways_[i].failure.empty() ? "a run took " + ms_text(ways_[i].best_ms) +
                                               ", by plain launches " + ms_text(kept_ms)
                                         : ways_[i].failure);
  }
  return nullptr;
}

std::unique_ptr<Replay> record_command_buffer(Device& device, cl_command_queue queue,
                                              const LaunchRange& launches) {
  if (!device.info().has_extension(kExtension)) {
    TVM_FFI_THROW(RuntimeError) << "the device has no " << kExtension;
  }
  const cl_bitfield wanted =
      buffer_property(device.id(), CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES);
  if (wanted != 0) {
    TVM_FFI_THROW(RuntimeError) << "the device wants queues with the properties " << wanted
                                << " for command buffers";
  }
  const CommandBufferApi functions{device.platform()};
  const bool shared =
      (buffer_property(device.id(), CL_DEVICE_COMMAND_BUFFER_CAPABILITIES) &
       CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE) != 0;
  std::vector<CommandBuffer> buffers;
  // Where a buffer cannot be given again before it has run, one can be given while another runs.
  for (int i = 0; i < (shared ? 1 : 2); ++i) {
    buffers.emplace_back(functions, queue, shared, launches);
  }
  return std::make_unique<CommandBufferReplay>(device, launches.size(), !shared,
                                               std::move(buffers));
}

std::unique_ptr<Replay> record_recordable_queue(
    Device& device, cl_command_queue, const LaunchRange& launches) {
  if (!device.info().has_extension(kRecordableQueues)) {
    TVM_FFI_THROW(RuntimeError) << "the device has no " << kRecordableQueues;
  }
  const RecordingApi functions{device.platform()};
  cl_uint most = 0;
  ADRENOC_CL_CALL(clGetDeviceInfo, device.id(), CL_DEVICE_RECORDABLE_QUEUE_MAX_SIZE, sizeof(most),
                  &most, nullptr);
  if (most == 0) TVM_FFI_THROW(RuntimeError) << "the device records 0 launches at a time";
  cl_int code = CL_SUCCESS;
  QueueHandle recorder(
      api().clCreateCommandQueue(device.context(), device.id(), CL_QUEUE_RECORDABLE, &code));
  check(code, "clCreateCommandQueue");
  auto replay = std::make_unique<RecordableQueueReplay>(device, launches.size(), functions,
                                                        std::move(recorder));
  for (const KeptLaunches::Launch* begin = launches.begin(); begin != launches.end();) {
    const auto count = std::min<size_t>(most, static_cast<size_t>(launches.end() - begin));
    replay->record(begin, begin + count);
    begin += count;
  }
  return replay;
}

}  // namespace adrenoc_runtime::opencl
