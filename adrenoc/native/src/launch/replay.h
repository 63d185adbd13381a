// Ways to launch the kernels of a run again.
#pragma once

#include <tvm/ffi/error.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/stopwatch.h"
#include "base/utf8.h"
#include "files/file.h"
#include "launch/cancelling.h"
#include "launch/kernel.h"
#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

class Replay {
 public:
  virtual ~Replay() = default;

  // "a command buffer".
  [[nodiscard]] virtual const char* name() const = 0;

  // Gives all launches to the device's queue, which the caller has locked.  Steps between them run
  // without the lock; it is held again in the end, also where an error is thrown.  Throws
  // RuntimeError or MemoryError when the driver fails, and what a step throws; some launches may
  // have been given then.
  virtual void enqueue(QueueLock& queue) = 0;
};

// A step may need the queue itself.
inline void run_step(Device& device, QueueLock& queue, const CapturedStep& step) {
  queue.unlock();
  try {
    step.again();
  } catch (...) {
    queue = device.lock_queue();
    throw;
  }
  queue = device.lock_queue();
}

inline std::string ms_text(double ms) { return number_text("%.3f ms", ms); }

// One OpenCL kernel object a launch, whose arguments were set once.
class KeptLaunches final : public Replay {
 public:
  struct Launch {
    KernelHandle handle;
    const std::string* name;
    WorkSize work;
  };

  // `steps` have to outlive this.
  KeptLaunches(Device& device, const std::vector<CapturedLaunch>& launches,
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

  [[nodiscard]] const char* name() const final { return "kept arguments"; }
  // Notes when each kernel runs, where the device is being profiled.
  void enqueue(QueueLock& queue) final {
    auto step = steps_.begin();
    for (size_t done = 0;; ++done) {
      for (; step != steps_.end() && step->launches_before == done; ++step) {
        run_step(device_, queue, *step);
      }
      if (done == launches_.size()) return;
      launch(queue.get(), launches_[done]);
    }
  }
  // The same in pieces that take the device at most so long; all has ended when it returns. Between
  // them the queue is anybody's.
  void enqueue_paced(QueueLock& queue, double limit_ms) {
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
  // Of the last enqueue_paced.
  [[nodiscard]] const Pieces& pieces() const { return pacing_.pieces(); }
  // The launch that no piece can be shorter than, where that is beyond the limit: a sentence, else
  // "".
  [[nodiscard]] std::string beyond(double limit_ms) const {
    const size_t longest = pacing_.longest_launch();
    if (launches_.empty() || pacing_.ms_of(longest) <= limit_ms) return "";
    return "kernel " + *launches_[longest].name + " takes " + ms_text(pacing_.ms_of(longest)) +
           " by itself, more than the ceiling of " + ms_text(limit_ms);
  }

  [[nodiscard]] const std::vector<CapturedStep>& steps() const { return steps_; }
  [[nodiscard]] const std::vector<Launch>& launches() const { return launches_; }

  // Sets one argument of one launch anew.  Not while a recording of the launches is in use: drivers
  // differ in whether it sees the change.
  void set_argument(size_t launch, size_t index, const KernelArgument& argument) {
    const Launch& changed = launches_[launch];
    set_kernel_argument(changed.handle.get(), *changed.name, index, argument);
  }

 private:
  void launch(cl_command_queue queue, const Launch& launch) {
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

  Device& device_;
  std::vector<Launch> launches_;
  const std::vector<CapturedStep>& steps_;
  Pacing pacing_;
};

// A run of launches without a step between them.
class LaunchRange {
 public:
  using Launch = KeptLaunches::Launch;
  LaunchRange(const Launch* first, const Launch* last) : first_(first), last_(last) {}

  [[nodiscard]] const Launch* begin() const { return first_; }
  [[nodiscard]] const Launch* end() const { return last_; }
  [[nodiscard]] size_t size() const { return static_cast<size_t>(last_ - first_); }

 private:
  const Launch* first_;
  const Launch* last_;
};

// The launches as one command, by cl_khr_command_buffer, or as few, by cl_qcom_recordable_queues.
// `queue` is the device's, locked.  They refer to `launches` no longer than the call.  Throw
// RuntimeError or MemoryError that say why it cannot be done.
using Record = std::unique_ptr<Replay>(Device& device, cl_command_queue queue,
                                       const LaunchRange& launches);

// What a driver has recorded of launches.
class Recorded final : public Replay {
 public:
  // `give` gives all of it to the device's queue.
  Recorded(const char* name, Device& device, size_t launches,
           std::function<void(cl_command_queue queue)> give)
      : name_(name), device_(device), launches_(launches), give_(std::move(give)) {}

  [[nodiscard]] const char* name() const final { return name_; }

  void enqueue(QueueLock& queue) final {
    trace("replaying", name_);
    give_(queue.get());
    device_.launched(queue.get(), launches_);
  }

 private:
  const char* const name_;
  Device& device_;
  const size_t launches_;
  const std::function<void(cl_command_queue queue)> give_;
};

inline void expect_extension(const Device& device, const char* extension) {
  if (device.info().has_extension(extension)) return;
  TVM_FFI_THROW(RuntimeError) << "the device has no " << extension;
}

// A property of command buffers; 0 where the device does not know it.
inline cl_bitfield buffer_property(cl_device_id device, cl_uint what) {
  cl_bitfield value = 0;
  const cl_int code = api().clGetDeviceInfo(device, what, sizeof(value), &value, nullptr);
  return code == CL_SUCCESS ? value : 0;
}

// An object of an extension, and what gives it back: it goes, whatever the driver answers.
template <typename T>
using ExtensionHandle = std::shared_ptr<std::remove_pointer_t<T>>;

template <typename T>
ExtensionHandle<T> held(T value, cl_int (*release)(T)) {
  return {value, [release](T made) {
            if (made == nullptr) return;
            count_api_call();
            (void)release(made);
          }};
}

inline ExtensionHandle<cl_command_buffer> filled_buffer(const CommandBufferApi& functions,
                                                        cl_command_queue queue, bool shared,
                                                        const LaunchRange& launches) {
  const std::array<cl_ulong, 3> flags = {CL_COMMAND_BUFFER_FLAGS,
                                         CL_COMMAND_BUFFER_SIMULTANEOUS_USE, 0};
  cl_int code = CL_SUCCESS;
  count_api_call();
  auto buffer = held(functions.create_buffer(1, &queue, shared ? flags.data() : nullptr, &code),
                     functions.release_buffer);
  check(code, "clCreateCommandBufferKHR");
  // Each command waits for the one before, as in the queue: drivers differ in whether the order
  // of an in-order queue holds inside of a buffer.
  cl_uint point = 0;
  for (const KeptLaunches::Launch& launch : launches) {
    const cl_uint before = point;
    const bool is_first = &launch == launches.begin();
    count_api_call();
    check(functions.add_kernel(buffer.get(), nullptr, nullptr, launch.handle.get(),
                               launch.work.dimensions, nullptr, launch.work.global.data(),
                               launch.work.local.data(), is_first ? 0 : 1,
                               is_first ? nullptr : &before, &point, nullptr),
          "clCommandNDRangeKernelKHR");
  }
  count_api_call();
  check(functions.finalize_buffer(buffer.get()), "clFinalizeCommandBufferKHR");
  return buffer;
}

[[nodiscard]] inline std::unique_ptr<Replay> record_command_buffer(Device& device,
                                                                   cl_command_queue queue,
                                                                   const LaunchRange& launches) {
  expect_extension(device, "cl_khr_command_buffer");
  const cl_bitfield wanted =
      buffer_property(device.id(), CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES);
  if (wanted != 0) {
    TVM_FFI_THROW(RuntimeError) << "the device wants queues with the properties " << wanted
                                << " for command buffers";
  }
  const CommandBufferApi functions{device.platform()};
  const bool shared = (buffer_property(device.id(), CL_DEVICE_COMMAND_BUFFER_CAPABILITIES) &
                       CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE) != 0;
  struct Use {
    ExtensionHandle<cl_command_buffer> buffer;
    EventHandle running;
  };
  const auto uses = std::make_shared<std::vector<Use>>();
  // Where a buffer cannot be given again before it has run, one can be given while another runs.
  for (int i = 0; i < (shared ? 1 : 2); ++i) {
    uses->push_back({filled_buffer(functions, queue, shared, launches), EventHandle()});
  }
  const auto give = [functions, shared, uses](cl_command_queue to) {
    Use& use = uses->front();
    if (use.running) {
      const cl_event event = use.running.get();
      ADRENOC_CL_CALL(clWaitForEvents, 1, &event);
      use.running = EventHandle();
    }
    cl_event event = nullptr;
    count_api_call();
    const cl_int code =
        functions.enqueue_buffer(1, &to, use.buffer.get(), 0, nullptr, shared ? nullptr : &event);
    check(code, "clEnqueueCommandBufferKHR");
    use.running = EventHandle(event);
    std::swap(uses->front(), uses->back());
  };
  return std::make_unique<Recorded>("a command buffer", device, launches.size(), give);
}

[[nodiscard]] inline std::unique_ptr<Replay> record_recordable_queue(Device& device,
                                                                     cl_command_queue,
                                                                     const LaunchRange& launches) {
  expect_extension(device, "cl_qcom_recordable_queues");
  const RecordingApi functions{device.platform()};
  cl_uint most = 0;
  ADRENOC_CL_CALL(clGetDeviceInfo, device.id(), CL_DEVICE_RECORDABLE_QUEUE_MAX_SIZE, sizeof(most),
                  &most, nullptr);
  if (most == 0) TVM_FFI_THROW(RuntimeError) << "the device records 0 launches at a time";
  cl_int code = CL_SUCCESS;
  struct Made {
    QueueHandle recorder;  // goes after what it recorded
    std::vector<ExtensionHandle<cl_recording>> recordings;
  };
  const auto made = std::make_shared<Made>();
  made->recorder = QueueHandle(
      api().clCreateCommandQueue(device.context(), device.id(), CL_QUEUE_RECORDABLE, &code));
  check(code, "clCreateCommandQueue");
  for (const KeptLaunches::Launch* launch = launches.begin(); launch != launches.end();) {
    count_api_call();
    const cl_recording recording = functions.new_recording(made->recorder.get(), &code);
    check(code, "clNewRecordingQCOM");
    made->recordings.push_back(held(recording, functions.release_recording));
    for (cl_uint i = 0; i < most && launch != launches.end(); ++i, ++launch) {
      ADRENOC_CL_CALL(clEnqueueNDRangeKernel, made->recorder.get(), launch->handle.get(),
                      launch->work.dimensions, nullptr, launch->work.global.data(),
                      launch->work.local.data(), 0, nullptr, nullptr);
    }
    count_api_call();
    check(functions.end_recording(recording), "clEndRecordingQCOM");
  }
  const auto give = [functions, made](cl_command_queue to) {
    for (const auto& recording : made->recordings) {
      count_api_call();
      const cl_int done = functions.enqueue_recording(to, recording.get(), 0, nullptr, 0, nullptr,
                                                      0, nullptr, 0, nullptr, 0, nullptr, nullptr);
      check(done, "clEnqueueRecordingQCOM");
    }
  };
  return std::make_unique<Recorded>("a recordable queue", device, launches.size(), give);
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

// All of `kept`: a recording of each range of launches, with its steps between them.
[[nodiscard]] inline std::unique_ptr<Replay> record_ranges(Device& device, cl_command_queue queue,
                                                           const KeptLaunches& kept,
                                                           Record* record) {
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

constexpr size_t kRunsOfEach = 2;

// What a recording has to be slower by, in both, to lose: less is noise.
constexpr double kSlowerFactor = 1.1;
constexpr double kSlowerMs = 0.05;

// Some drivers replay a recording more slowly than they take plain launches, so each way gets two
// runs, which are waited for.  A recording wins unless it is clearly slower: what it saves of the
// host's time is not in these times.
class Trial {
 public:
  Trial() = default;  // of nothing: not under way
  // `kept` must live as long as the trial.
  Trial(Replay& kept, std::vector<std::unique_ptr<Replay>> recorded) {
    const double unknown = std::numeric_limits<double>::infinity();
    ways_.push_back({&kept, nullptr, unknown, ""});
    for (std::unique_ptr<Replay>& replay : recorded) {
      Replay* plain = replay.get();
      ways_.push_back({plain, std::move(replay), unknown, ""});
    }
  }

  [[nodiscard]] bool is_under_way() const { return runs_ < ways_.size() * kRunsOfEach; }

  // Gives one run to the device and waits for it.  Returns the name of the way that it took, or
  // null when that way failed, which then is out of the trial.
  [[nodiscard]] const char* run(QueueLock& queue) {
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

  // The recording that won, or null; `reason` then says why none did.
  [[nodiscard]] std::unique_ptr<Replay> take_best(std::string* reason) {
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

 private:
  struct Way {
    Replay* replay;
    std::unique_ptr<Replay> owned;
    double best_ms;
    std::string failure;
  };

  std::vector<Way> ways_;  // the first is that of plain launches
  size_t runs_ = 0;
};

}  // namespace adrenoc_runtime::opencl
