#include "opencl/device.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace adrenoc_runtime::opencl {
namespace {

// As often as TFLite's GPU delegate does it (lite/delegates/gpu/cl/inference_context.cc).
constexpr size_t kKernelsPerFlush = 24;

thread_local uint64_t thread_kernel_launches = 0;

int kind_rank(const DeviceInfo& info) {
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

struct FoundDevices {
  std::vector<std::unique_ptr<Device>> devices;
  std::string absent;
};

// One broken driver must not hide the devices of the others.
void add_devices(cl_platform_id platform, FoundDevices* found) {
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

FoundDevices find_devices() {
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

const FoundDevices& found_devices() {
  // Never destroyed: tensors that outlive static destructors still point into it.
  static const auto* found = new FoundDevices(find_devices());
  return *found;
}

// A queue of a priority: by a call that OpenCL 1.x does not have.
cl_command_queue create_queue_with(cl_context context, cl_device_id id,
                                   std::vector<cl_ulong> properties, bool profiling, cl_int* code) {
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

thread_local int thread_device_id = 0;

namespace ffi = tvm::ffi;

constexpr const char* kAmbiguous = "CL_OUT_OF_RESOURCES";

std::string mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

// What a device answers to a small write that is waited for; "" where all went well.
std::string small_command(Device& device) {
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

namespace json = tvm::ffi::json;

constexpr const char* kPerformanceExtension = "cl_qcom_perf_hint";
constexpr const char* kPriorityExtension = "cl_qcom_priority_hint";
constexpr const char* kQueueExtension = "cl_khr_priority_hints";
constexpr const char* kNames[] = {"", "low", "normal", "high"};

// By the last call.
std::atomic<Hints> wanted{};

// High, normal and low follow each other in Qualcomm's numbers, and in the standard's bits.
intptr_t qualcomm_number(cl_uint high, Level level) {
  return static_cast<intptr_t>(high) + (static_cast<int>(Level::kHigh) - static_cast<int>(level));
}

cl_ulong queue_bit(Level level) {
  return CL_QUEUE_PRIORITY_HIGH << (static_cast<int>(Level::kHigh) - static_cast<int>(level));
}

}  // namespace

Device::Device(cl_platform_id platform, cl_device_id id)
    : platform_(platform), id_(id), info_(query_device_info(platform, id)) {}

void Device::initialize() {
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

ContextHandle Device::make_context() {
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

QueueHandle Device::make_queue(cl_context context, bool profiling) {
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

std::vector<HintUse> Device::hint_uses() {
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

cl_context Device::context() {
  initialize();
  return context_.get();
}

MemoryPool& Device::memory() {
  initialize();
  return *memory_;
}

QueueLock Device::lock_queue() {
  initialize();
  std::unique_lock<std::mutex> lock(queue_mutex_);
  return {std::move(lock), queue_.get()};
}

HeldBytes Device::held_bytes() {
  if (!is_used_) return {};
  return memory_->held_bytes();
}

void Device::release_pool_if_used() {
  if (is_used_) memory_->release_pool();
}

void Device::finish() {
  const QueueLock queue = lock_queue();
  ADRENOC_CL_CALL(clFinish, queue.get());
  unflushed_kernels_ = 0;
}

uint64_t kernel_launches() { return thread_kernel_launches; }

void Device::launched(cl_command_queue queue, size_t kernels) {
  thread_kernel_launches += kernels;
  unflushed_kernels_ += kernels;
  if (unflushed_kernels_ < kKernelsPerFlush) return;
  unflushed_kernels_ = 0;
  ADRENOC_CL_CALL(clFlush, queue);
}

void Device::want_profiling(bool wanted) {
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

void release_all_pools() {
  if (library_path().empty()) return;  // then none was used
  for (const auto& device : all_devices()) device->release_pool_if_used();
}

HeldBytes held_bytes() {
  HeldBytes all;
  if (library_path().empty()) return all;
  for (const auto& device : all_devices()) {
    const HeldBytes one = device->held_bytes();
    all.used += one.used;
    all.pooled += one.pooled;
  }
  return all;
}

const std::vector<std::unique_ptr<Device>>& all_devices() { return found_devices().devices; }

std::string absent_devices() { return found_devices().absent; }

Device& device_at(int device_id) {
  const auto& devices = all_devices();
  if (device_id < 0 || static_cast<size_t>(device_id) >= devices.size()) {
    TVM_FFI_THROW(ValueError) << "There is no OpenCL device " << device_id << ": " << library_path()
                              << " has " << devices.size() << " devices";
  }
  return *devices[static_cast<size_t>(device_id)];
}

int current_device_id() { return thread_device_id; }
void set_current_device_id(int device_id) { thread_device_id = device_id; }

std::string Diagnosis::text() const {
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

ffi::json::Object Diagnosis::to_json() const {
  ffi::json::Object json;
  json.Set("used_bytes", static_cast<int64_t>(used_bytes));
  json.Set("device_bytes", static_cast<int64_t>(device_bytes));
  json.Set("refusal", ffi::String(refusal));
  json.Set("memory_short", is_memory_short());
  json.Set("text", ffi::String(text()));
  return json;
}

Diagnosis diagnose(Device& device) {
  Diagnosis found;
  found.used_bytes = device.memory().allocated_bytes();
  found.device_bytes = device.info().global_memory_bytes;
  device.memory().release_pool();
  found.refusal = small_command(device);
  return found;
}

std::string explained(const std::string& message, Device& device) {
  if (message.find(kAmbiguous) == message.npos) return message;
  return message + "; " + diagnose(device).text();
}

Level level_of(const std::string& word) {
  for (int i = 0; i < 4; ++i) {
    if (word == kNames[i]) return static_cast<Level>(i);
  }
  TVM_FFI_THROW(ValueError) << "a hint is \"" << word << "\", expected low, normal or high";
  TVM_FFI_UNREACHABLE();
}

const char* level_name(Level level) { return kNames[static_cast<int>(level)]; }

void set_hints(const Hints& hints) { wanted = hints; }

Hints wanted_hints() { return wanted; }

json::Array to_json(const std::vector<HintUse>& uses) {
  json::Array list;
  for (const HintUse& use : uses) {
    json::Object entry;
    entry.Set("hint", tvm::ffi::String(use.hint));
    entry.Set("asked", tvm::ffi::String(use.asked));
    entry.Set("given_by", tvm::ffi::String(use.given_by));
    entry.Set("reason", tvm::ffi::String(use.reason));
    list.push_back(entry);
  }
  return list;
}

std::vector<std::string> to_notes(const std::vector<HintUse>& uses) {
  std::vector<std::string> notes;
  for (const HintUse& use : uses) {
    const std::string begin = use.hint + " " + use.asked;
    notes.push_back(use.given_by.empty() ? begin + " was not asked of the driver: " + use.reason
                                         : begin + " was asked of the driver by " + use.given_by);
  }
  return notes;
}

HintProperties hint_properties(const Hints& hints, const DeviceInfo& info) {
  HintProperties properties;
  const auto add = [&](const char* hint, Level level, const char* extension, cl_uint key,
                       cl_uint high) {
    if (level == Level::kUnset) return;
    HintUse use{hint, level_name(level), "", ""};
    if (info.has_extension(extension)) {
      use.given_by = extension;
      properties.context.push_back(key);
      properties.context.push_back(qualcomm_number(high, level));
    } else {
      use.reason = info.name + " has no " + extension;
    }
    properties.uses.push_back(use);
  };
  add("performance", hints.performance, kPerformanceExtension, CL_CONTEXT_PERF_HINT_QCOM,
      CL_PERF_HINT_HIGH_QCOM);
  add("priority", hints.priority, kPriorityExtension, CL_CONTEXT_PRIORITY_HINT_QCOM,
      CL_PRIORITY_HINT_HIGH_QCOM);
  if (hints.priority != Level::kUnset && properties.uses.back().given_by.empty()) {
    HintUse& use = properties.uses.back();
    if (info.has_extension(kQueueExtension)) {
      use.given_by = kQueueExtension;
      use.reason.clear();
      properties.queue = {CL_QUEUE_PRIORITY, queue_bit(hints.priority)};
    } else {
      use.reason += std::string(" and no ") + kQueueExtension;
    }
  }
  if (!properties.context.empty()) properties.context.push_back(0);
  return properties;
}

void refused_hints(const std::string& error, std::vector<HintUse>* uses) {
  for (HintUse& use : *uses) {
    if (use.given_by.empty()) continue;
    use.reason = "the driver has " + use.given_by + " and refused it with " + error;
    use.given_by.clear();
  }
}

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
  if (!recording_) TVM_FFI_THROW(RuntimeError) << "Profiling has not been started on this device";
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
