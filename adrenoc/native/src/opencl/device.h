// One OpenCL device: its context, its queue, its memory, what is wished of its driver and what its
// kernels took; and the list of all of them.
#pragma once

#include <tvm/ffi/extra/json.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "opencl/cl_api.h"
#include "opencl/device_info.h"
#include "opencl/memory.h"

namespace adrenoc_runtime::opencl {

enum class Level { kUnset, kLow, kNormal, kHigh };

// "" (unset), "low", "normal" or "high".  Throws ValueError for another word.
[[nodiscard]] Level level_of(const std::string& word);
[[nodiscard]] const char* level_name(Level level);

struct alignas(2 * sizeof(Level)) Hints {  // so that they are read and written as one number
  Level performance = Level::kUnset;
  Level priority = Level::kUnset;

  [[nodiscard]] bool operator==(const Hints& other) const {
    return performance == other.performance && priority == other.priority;
  }
};

// For devices that are used for the first time after this; the last call counts.
void set_hints(const Hints& hints);
[[nodiscard]] Hints wanted_hints();

// What became of one wish.
struct HintUse {
  std::string hint;      // "performance" or "priority"
  std::string asked;     // "low", "normal" or "high"
  std::string given_by;  // the extension that passes it on; "" where there is none
  std::string reason;    // why it is not passed on
};
[[nodiscard]] tvm::ffi::json::Array to_json(const std::vector<HintUse>& uses);
// A sentence each.
[[nodiscard]] std::vector<std::string> to_notes(const std::vector<HintUse>& uses);

// The properties that make a context or a queue so, ended by 0, and what became of each wish.
struct HintProperties {
  std::vector<intptr_t> context;
  std::vector<cl_ulong> queue;  // beside what else the queue is
  std::vector<HintUse> uses;
};
[[nodiscard]] HintProperties hint_properties(const Hints& hints, const DeviceInfo& info);

// The driver refused what passes wishes on: `uses` as they are without.
void refused_hints(const std::string& error, std::vector<HintUse>* uses);

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

// The right to use a device's queue.  OpenCL lets one thread at a time set the arguments of a
// kernel, and the queue can be exchanged for a profiling one, so commands are given under a lock.
class QueueLock {
 public:
  QueueLock(std::unique_lock<std::mutex> lock, cl_command_queue queue)
      : lock_(std::move(lock)), queue_(queue) {}
  [[nodiscard]] cl_command_queue get() const { return queue_; }

  // Until another lock is assigned, which may hold another queue.
  void unlock() { lock_.unlock(); }

 private:
  std::unique_lock<std::mutex> lock_;
  cl_command_queue queue_;
};

class Device {
 public:
  Device(cl_platform_id platform, cl_device_id id);

  [[nodiscard]] const DeviceInfo& info() const { return info_; }
  [[nodiscard]] cl_device_id id() const { return id_; }
  [[nodiscard]] cl_platform_id platform() const { return platform_; }

  // These three make the context at their first call, which takes some drivers a second.
  [[nodiscard]] cl_context context();
  [[nodiscard]] MemoryPool& memory();
  [[nodiscard]] QueueLock lock_queue();

  // What became of the hints that the context and the queue were made with, and of those that were
  // asked for since.
  [[nodiscard]] std::vector<HintUse> hint_uses();

  // Gives back pooled memory, if the device has been used at all.
  void release_pool_if_used();
  // Nothing before the device is used.
  [[nodiscard]] HeldBytes held_bytes();

  // Returns when all commands have ended.
  void finish();

  // Makes the queue record times; each call with true needs one with false.
  void want_profiling(bool wanted);

  // The rest is guarded by lock_queue().

  [[nodiscard]] Profiler& profiler() { return profiler_; }

  // Changes when the queue is exchanged for another one.
  [[nodiscard]] uint64_t queue_number() const { return queue_number_; }

  // Tells that kernels were given to the queue, by one command or several: every so often they are
  // flushed to the device, so that it begins while the host gives the rest.
  void launched(cl_command_queue queue, size_t kernels);

 private:
  void initialize();
  [[nodiscard]] ContextHandle make_context();
  [[nodiscard]] QueueHandle make_queue(cl_context context, bool profiling);

  const cl_platform_id platform_;
  const cl_device_id id_;
  const DeviceInfo info_;
  std::once_flag initialized_;
  std::atomic<bool> is_used_{false};
  Hints hints_;
  HintProperties hint_properties_;
  ContextHandle context_;
  std::unique_ptr<MemoryPool> memory_;
  std::mutex queue_mutex_;
  QueueHandle queue_;
  uint64_t queue_number_ = 0;
  size_t unflushed_kernels_ = 0;
  int profiling_users_ = 0;
  Profiler profiler_;
};

// How many kernels this thread has launched, those of recordings included.
[[nodiscard]] uint64_t kernel_launches();

// All devices: GPUs first, then accelerators, then CPUs; within a kind as the platforms list
// them.  The place in this list is TVM's device_id.  Throws RuntimeError without a library.
[[nodiscard]] const std::vector<std::unique_ptr<Device>>& all_devices();

// Why there are no more: a library without platforms, platforms that list no device, devices that
// tell no facts; empty where nothing of that kind was met.
[[nodiscard]] std::string absent_devices();

// Gives back what waits in the pools of all devices that were used.
void release_all_pools();

// Of all devices that were used.
[[nodiscard]] HeldBytes held_bytes();

// Throws ValueError for an id that no device has.
[[nodiscard]] Device& device_at(int device_id);

// The device that TVM has chosen for this thread; 0 unless it said otherwise.
[[nodiscard]] int current_device_id();
void set_current_device_id(int device_id);

// Why a device refused a command: drivers have one code, CL_OUT_OF_RESOURCES, for memory that ran
// out, kernels that faulted and kernels that ran for too long.
struct Diagnosis {
  uint64_t used_bytes = 0;    // by this process
  uint64_t device_bytes = 0;  // all that the device has
  // Whether it computes again, after the pool was given back: "" for yes, else the call and what it
  // answered.
  std::string refusal;

  // Whether so much is in use that memory may have run out.
  [[nodiscard]] bool is_memory_short() const { return used_bytes * 2 >= device_bytes; }
  // What decides, and what it was then.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] tvm::ffi::json::Object to_json() const;
};

// Tries a small command; to be asked after a command failed.
[[nodiscard]] Diagnosis diagnose(Device& device);

// The message of a failure that may have several causes, with what decides between them; any other
// message as it is.
[[nodiscard]] std::string explained(const std::string& message, Device& device);

}  // namespace adrenoc_runtime::opencl
