// One OpenCL device: its context, its queue, its memory and what its kernels took; and the list of
// all of them.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "opencl/cl_api.h"
#include "opencl/device_info.h"
#include "opencl/hints.h"
#include "opencl/memory.h"

namespace adrenoc_runtime::opencl {

struct KernelLaunch {
  std::string kernel;
  EventHandle event;
  // Of what has no event of its own; by the host's clock.
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

// One time stamp (CL_PROFILING_COMMAND_...) of an event that has ended, in ns.
[[nodiscard]] inline cl_ulong event_time_ns(cl_event event, cl_uint stamp) {
  cl_ulong time_ns = 0;
  ADRENOC_CL_CALL(clGetEventProfilingInfo, event, stamp, sizeof(time_ns), &time_ns, nullptr);
  return time_ns;
}

// [kernel, start_ns, end_ns] of each launch, by the device's own clock.  All must have ended.
[[nodiscard]] inline tvm::ffi::json::Array launch_times(const std::vector<KernelLaunch>& launches) {
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

class Profiler {
 public:
  [[nodiscard]] bool is_recording() const { return recording_; }
  void start() {
    if (recording_) {
      TVM_FFI_THROW(RuntimeError) << "Profiling has already been started on this device";
    }
    launches_.clear();
    recording_ = true;
  }
  void record(const std::string& kernel, EventHandle event) {
    launches_.push_back({kernel, std::move(event)});
  }
  void record_span(const std::string& name, int64_t start_ns, int64_t end_ns) {
    launches_.push_back({name, EventHandle(), start_ns, end_ns});
  }
  // Returns the launches since start(), in order.
  [[nodiscard]] std::vector<KernelLaunch> stop() {
    if (!recording_) TVM_FFI_THROW(RuntimeError) << "Profiling has not been started on this device";
    recording_ = false;
    return std::exchange(launches_, {});
  }

 private:
  bool recording_ = false;
  std::vector<KernelLaunch> launches_;
};

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

// As often as TFLite's GPU delegate does it (lite/delegates/gpu/cl/inference_context.cc).
constexpr size_t kKernelsPerFlush = 24;

inline thread_local uint64_t thread_kernel_launches = 0;

// A queue of a priority: by a call that OpenCL 1.x does not have.
inline cl_command_queue create_queue_with(cl_context context, cl_device_id id,
                                          std::vector<cl_ulong> properties, bool profiling,
                                          cl_int* code) {
  using Create = cl_command_queue (*)(cl_context, cl_device_id, const cl_ulong*, cl_int*);
  const auto create =
      reinterpret_cast<Create>(library_symbol("clCreateCommandQueueWithProperties"));
  if (create == nullptr) {
    *code = CL_INVALID_OPERATION;
    return nullptr;
  }
  if (profiling) {
    properties.insert(properties.end(), {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE});
  }
  properties.push_back(0);
  count_api_call();
  return create(context, id, properties.data(), code);
}

class Device {
 public:
  Device(cl_platform_id platform, cl_device_id id)
      : platform_(platform), id_(id), info_(query_device_info(platform, id)) {}

  [[nodiscard]] const DeviceInfo& info() const { return info_; }
  [[nodiscard]] cl_device_id id() const { return id_; }
  [[nodiscard]] cl_platform_id platform() const { return platform_; }

  // These three make the context at their first call, which takes some drivers a second.
  [[nodiscard]] cl_context context() {
    initialize();
    return context_.get();
  }
  [[nodiscard]] MemoryPool& memory() {
    initialize();
    return *memory_;
  }
  [[nodiscard]] QueueLock lock_queue() {
    initialize();
    std::unique_lock<std::mutex> lock(queue_mutex_);
    return {std::move(lock), queue_.get()};
  }

  // What became of the hints that the context and the queue were made with, and of those that were
  // asked for since.
  [[nodiscard]] std::vector<HintUse> hint_uses() {
    initialize();
    const Hints wanted = wanted_hints();
    std::vector<HintUse> uses;
    {
      const QueueLock queue = lock_queue();
      uses = hint_properties_.uses;
    }
    const auto add = [&uses](const char* hint, Level asked, Level had) {
      if (asked == had || asked == Level::kUnset) return;
      uses.push_back({hint, level_name(asked), "",
                      "the device was in use by this process before it was asked for"});
    };
    add("performance", wanted.performance, hints_.performance);
    add("priority", wanted.priority, hints_.priority);
    return uses;
  }

  // Gives back pooled memory, if the device has been used at all.
  void release_pool_if_used() {
    if (is_used_) memory_->release_pool();
  }
  // Nothing before the device is used.
  [[nodiscard]] HeldBytes held_bytes() {
    if (!is_used_) return {};
    return memory_->held_bytes();
  }

  // Returns when all commands have ended.
  void finish() {
    const QueueLock queue = lock_queue();
    ADRENOC_CL_CALL(clFinish, queue.get());
    unflushed_kernels_ = 0;
  }

  // Makes the queue record times; each call with true needs one with false.
  void want_profiling(bool wanted) {
    const QueueLock queue = lock_queue();
    const int users = profiling_users_ + (wanted ? 1 : -1);
    if ((users > 0) != (profiling_users_ > 0)) {
      // Whether a queue records times is fixed when it is made.
      ADRENOC_CL_CALL(clFinish, queue.get());
      queue_ = make_queue(context_.get(), users > 0);
      ++queue_number_;
    }
    profiling_users_ = users;
  }

  // The rest is guarded by lock_queue().

  [[nodiscard]] Profiler& profiler() { return profiler_; }

  // Changes when the queue is exchanged for another one.
  [[nodiscard]] uint64_t queue_number() const { return queue_number_; }

  // Tells that kernels were given to the queue, by one command or several: every so often they are
  // flushed to the device, so that it begins while the host gives the rest.
  void launched(cl_command_queue queue, size_t kernels) {
    thread_kernel_launches += kernels;
    unflushed_kernels_ += kernels;
    if (unflushed_kernels_ < kKernelsPerFlush) return;
    unflushed_kernels_ = 0;
    ADRENOC_CL_CALL(clFlush, queue);
  }

 private:
  void initialize() {
    std::call_once(initialized_, [this] {
      hints_ = wanted_hints();
      hint_properties_ = hint_properties(hints_, info_);
      ContextHandle context = make_context();
      queue_ = make_queue(context.get(), false);
      memory_ = std::make_unique<MemoryPool>(context.get(), info_);
      context_ = std::move(context);
      is_used_ = true;
    });
  }
  [[nodiscard]] ContextHandle make_context() {
    cl_int code = CL_SUCCESS;
    if (!hint_properties_.context.empty()) {
      const intptr_t* properties = hint_properties_.context.data();
      ContextHandle made(api().clCreateContext(properties, 1, &id_, nullptr, nullptr, &code));
      if (code == CL_SUCCESS) return made;
      refused_hints(error_name(code), &hint_properties_.uses);
    }
    ContextHandle made(api().clCreateContext(nullptr, 1, &id_, nullptr, nullptr, &code));
    check(code, "clCreateContext");
    return made;
  }
  [[nodiscard]] QueueHandle make_queue(cl_context context, bool profiling) {
    cl_int code = CL_SUCCESS;
    if (!hint_properties_.queue.empty()) {
      QueueHandle made(create_queue_with(context, id_, hint_properties_.queue, profiling, &code));
      if (code == CL_SUCCESS) return made;
      refused_hints(error_name(code), &hint_properties_.uses);
      hint_properties_.queue.clear();
    }
    QueueHandle made(
        api().clCreateCommandQueue(context, id_, profiling ? CL_QUEUE_PROFILING_ENABLE : 0, &code));
    check(code, "clCreateCommandQueue");
    return made;
  }

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

struct FoundDevices {
  std::vector<std::unique_ptr<Device>> devices;
  std::string absent;
};

inline int kind_rank(const DeviceInfo& info) {
  if (info.type == "gpu") return 0;
  if (info.type == "accelerator") return 1;
  return info.type == "cpu" ? 2 : 3;
}

// The ids behind a two-step query; `absent` is the code that means "none".
template <typename Id, typename Query>
std::vector<Id> list_ids(Query query, cl_int absent, const char* call) {
  cl_uint count = 0;
  const cl_int code = query(0, nullptr, &count);
  if (code == absent) return {};
  check(code, call);
  std::vector<Id> ids(count);
  if (count != 0) check(query(count, ids.data(), nullptr), call);
  return ids;
}

// One broken driver must not hide the devices of the others.
inline void add_devices(cl_platform_id platform, FoundDevices* found) {
  const auto is_absent = [&](const std::string& what, const std::string& why) {
    std::string name = "a platform without a name";
    try {
      name = query_platform_name(platform);
    } catch (const tvm::ffi::Error&) {  // then it has none
    }
    found->absent += (found->absent.empty() ? "" : "; ") + what + name + why;
  };
  try {
    const auto ids = list_ids<cl_device_id>(
        [platform](cl_uint n, cl_device_id* out, cl_uint* count) {
          return api().clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, n, out, count);
        },
        CL_DEVICE_NOT_FOUND, "clGetDeviceIDs");
    if (ids.empty()) is_absent("", " lists no device");
    for (cl_device_id id : ids) {
      try {
        found->devices.push_back(std::make_unique<Device>(platform, id));
      } catch (const tvm::ffi::Error& error) {
        is_absent("a device of ", " is left out: " + error.message());
      }
    }
  } catch (const tvm::ffi::Error& error) {
    is_absent("", " lists no devices: " + error.message());
  }
}

inline FoundDevices find_devices() {
  FoundDevices found;
  const auto platforms =
      list_ids<cl_platform_id>([](cl_uint n, cl_platform_id* out,
                                  cl_uint* count) { return api().clGetPlatformIDs(n, out, count); },
                               CL_PLATFORM_NOT_FOUND_KHR, "clGetPlatformIDs");
  if (platforms.empty()) found.absent = library_path() + " lists no platform: it found no driver";
  for (cl_platform_id platform : platforms) add_devices(platform, &found);
  std::stable_sort(found.devices.begin(), found.devices.end(), [](const auto& a, const auto& b) {
    return kind_rank(a->info()) < kind_rank(b->info());
  });
  return found;
}

inline const FoundDevices& found_devices() {
  // Never destroyed: tensors that outlive static destructors still point into it.
  static const auto* found = new FoundDevices(find_devices());
  return *found;
}

// All devices: GPUs first, then accelerators, then CPUs; within a kind as the platforms list
// them.  The place in this list is TVM's device_id.  Throws RuntimeError without a library.
[[nodiscard]] inline const std::vector<std::unique_ptr<Device>>& all_devices() {
  return found_devices().devices;
}

// Throws ValueError for an id that no device has.
[[nodiscard]] inline Device& device_at(int device_id) {
  const auto& devices = all_devices();
  if (device_id < 0 || static_cast<size_t>(device_id) >= devices.size()) {
    TVM_FFI_THROW(ValueError) << "There is no OpenCL device " << device_id << ": " << library_path()
                              << " has " << devices.size() << " devices";
  }
  return *devices[static_cast<size_t>(device_id)];
}

// All that a device launches is noted from now on; JSON of that, which ends it.
inline void start_profiling(int device_id) {
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

[[nodiscard]] inline tvm::ffi::String stop_profiling(int device_id) {
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

// How many kernels this thread has launched, those of recordings included.
[[nodiscard]] inline uint64_t kernel_launches() { return thread_kernel_launches; }

// Why there are no more: a library without platforms, platforms that list no device, devices that
// tell no facts; empty where nothing of that kind was met.
[[nodiscard]] inline std::string absent_devices() { return found_devices().absent; }

// Gives back what waits in the pools of all devices that were used.
inline void release_all_pools() {
  if (library_path().empty()) return;  // then none was used
  for (const auto& device : all_devices()) device->release_pool_if_used();
}

// Of all devices that were used.
[[nodiscard]] inline HeldBytes held_bytes() {
  HeldBytes all;
  if (library_path().empty()) return all;
  for (const auto& device : all_devices()) {
    const HeldBytes one = device->held_bytes();
    all.used += one.used;
    all.pooled += one.pooled;
  }
  return all;
}

inline thread_local int thread_device_id = 0;

// The device that TVM has chosen for this thread; 0 unless it said otherwise.
[[nodiscard]] inline int current_device_id() { return thread_device_id; }

inline void set_current_device_id(int device_id) { thread_device_id = device_id; }

namespace ffi = tvm::ffi;

inline std::string mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

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
  [[nodiscard]] std::string text() const {
    const std::string used = mebibytes(used_bytes) + " of the device's " + mebibytes(device_bytes) +
                             " are in use by this process";
    if (!refusal.empty()) {
      return "the device takes no command any more (" + refusal + "), while " + used +
             ": it was lost, as after a kernel that faulted or ran for too long";
    }
    if (is_memory_short()) {
      return "the device takes commands again, and " + used +
             ": memory ran out, or else a kernel faulted or ran for too long";
    }
    return "the device takes commands again, and " + used +
           ": a kernel faulted, ran for too long, or asked for more registers or local memory than "
           "there are, rather than that memory ran out";
  }
  [[nodiscard]] tvm::ffi::json::Object to_json() const {
    ffi::json::Object json;
    json.Set("used_bytes", static_cast<int64_t>(used_bytes));
    json.Set("device_bytes", static_cast<int64_t>(device_bytes));
    json.Set("refusal", ffi::String(refusal));
    json.Set("memory_short", is_memory_short());
    json.Set("text", ffi::String(text()));
    return json;
  }
};

// What a device answers to a small write that is waited for; "" where all went well.
inline std::string small_command(Device& device) {
  constexpr size_t bytes = 64;
  const char zeros[bytes] = {};
  cl_int code = CL_SUCCESS;
  const MemHandle memory(
      api().clCreateBuffer(device.context(), CL_MEM_READ_WRITE, bytes, nullptr, &code));
  if (code != CL_SUCCESS) return "clCreateBuffer failed with " + error_name(code);
  const QueueLock queue = device.lock_queue();
  code = api().clEnqueueWriteBuffer(queue.get(), memory.get(), CL_TRUE, 0, bytes, zeros, 0, nullptr,
                                    nullptr);
  if (code != CL_SUCCESS) return "clEnqueueWriteBuffer failed with " + error_name(code);
  code = api().clFinish(queue.get());
  return code == CL_SUCCESS ? "" : "clFinish failed with " + error_name(code);
}

// Tries a small command; to be asked after a command failed.
[[nodiscard]] inline Diagnosis diagnose(Device& device) {
  Diagnosis found;
  found.used_bytes = device.memory().held_bytes().used;
  found.device_bytes = device.info().global_memory_bytes;
  device.memory().release_pool();
  found.refusal = small_command(device);
  return found;
}

constexpr const char* kAmbiguous = "CL_OUT_OF_RESOURCES";

// The message of a failure that may have several causes, with what decides between them; any other
// message as it is.
[[nodiscard]] inline std::string explained(const std::string& message, Device& device) {
  if (message.find(kAmbiguous) == message.npos) return message;
  return message + "; " + diagnose(device).text();
}

}  // namespace adrenoc_runtime::opencl
