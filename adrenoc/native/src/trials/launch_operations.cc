// Launches one by one and recorded, devices with hints, buffers at the limit.
#include <tvm/ffi/error.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "launch/kernel.h"
#include "launch/replay.h"
#include "opencl/hints.h"
#include "trials/host_operation.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

constexpr size_t kThreads = 64;
constexpr size_t kMostLaunches = 4096;
constexpr auto kMostMemory = static_cast<size_t>(
    std::min<uint64_t>(uint64_t{1} << 40, std::numeric_limits<size_t>::max()));
constexpr const char* kName = "operation";
constexpr const char* kCount =
    "__kernel void operation(__global int* x) { x[get_global_id(0)] += 1; }\n";
// Adds to the first, the middle and the last numbers of a buffer.
constexpr const char* kEnds =
    "__kernel void operation(__global int* x, ulong words) {\n"
    "  const ulong t = get_global_id(0);\n"
    "  x[t] += 1;\n  x[words / 2 + t] += 1;\n  x[words - 64 + t] += 1;\n}\n";

Kernel built_kernel(Device& device, const std::string& text) {
  const std::vector<const std::string*> texts = {&text};
  auto program =
      std::make_shared<const BuiltProgram>(device, std::vector<std::string>{kName}, texts);
  return {device, kName, std::move(program), KernelText{kName, {}}, 0};
}

std::shared_ptr<Storage> zeros(Device& device, size_t bytes) {
  cl_int code = CL_SUCCESS;
  auto storage = std::make_shared<Storage>();
  storage->spec = StorageSpec::buffer(bytes);
  // Of its own: a pool would keep it.
  storage->mem =
      MemHandle(api().clCreateBuffer(device.context(), CL_MEM_READ_WRITE, bytes, nullptr, &code));
  check(code, "clCreateBuffer");
  return storage;
}

using Numbers = std::array<int32_t, kThreads>;

void write_numbers(Device& device, cl_mem memory, size_t at, const Numbers& numbers) {
  const QueueLock queue = device.lock_queue();
  ADRENOC_CL_CALL(clEnqueueWriteBuffer, queue.get(), memory, CL_TRUE, at * sizeof(int32_t),
                  sizeof(numbers), numbers.data(), 0, nullptr, nullptr);
}

bool holds(Device& device, cl_mem memory, size_t at, int32_t wanted) {
  Numbers numbers = {};
  const QueueLock queue = device.lock_queue();
  ADRENOC_CL_CALL(clEnqueueReadBuffer, queue.get(), memory, CL_TRUE, at * sizeof(int32_t),
                  sizeof(numbers), numbers.data(), 0, nullptr, nullptr);
  return std::all_of(numbers.begin(), numbers.end(),
                     [wanted](int32_t number) { return number == wanted; });
}

constexpr WorkSize kWork = {3, {kThreads, 1, 1}, {kThreads, 1, 1}};

// Each launch adds one, so that one which a recording lost is missed.
class LaunchOperation final : public HostOperation {
 public:
  LaunchOperation(Device& device, const std::string& way, size_t count)
      : device_(device),
        count_(count),
        kernel_(built_kernel(device, kCount)),
        memory_(zeros(device, sizeof(Numbers))),
        kept_(device, launches(), steps_) {
    write_numbers(device_, memory_->mem.get(), 0, Numbers{});
    if (way == "queue") return;
    Record* record = way == "recording"        ? record_recordable_queue
                     : way == "command_buffer" ? record_command_buffer
                                               : nullptr;
    if (record == nullptr) TVM_FFI_THROW(ValueError) << "There is no way \"" << way << "\"";
    const QueueLock queue = device_.lock_queue();
    recorded_ = record_ranges(device_, queue.get(), kept_, record);
  }

  double timed_us() final {
    Replay& way = recorded_ != nullptr ? *recorded_ : kept_;
    const HostClock clock;
    {
      QueueLock queue = device_.lock_queue();
      way.enqueue(queue);
    }
    device_.finish();
    done_ += static_cast<int32_t>(count_);
    return clock.us();
  }

  bool is_right() final { return holds(device_, memory_->mem.get(), 0, done_); }

 private:
  std::vector<CapturedLaunch> launches() {
    const CapturedArgument argument{sizeof(cl_mem), {}, memory_};
    return std::vector<CapturedLaunch>(count_, CapturedLaunch{&kernel_, kWork, {argument}});
  }

  Device& device_;
  const size_t count_;
  Kernel kernel_;
  const std::shared_ptr<Storage> memory_;
  const std::vector<CapturedStep> steps_;
  KeptLaunches kept_;
  std::unique_ptr<Replay> recorded_;  // null for plain launches
  int32_t done_ = 0;
};

class LargeOperation final : public HostOperation {
 public:
  LargeOperation(Device& device, size_t bytes)
      : device_(device),
        words_(bytes / sizeof(int32_t)),
        kernel_(built_kernel(device, kEnds)),
        memory_(zeros(device, bytes)) {
    for (const size_t at : places()) write_numbers(device_, memory_->mem.get(), at, Numbers{});
  }

  double timed_us() final {
    const HostClock clock;
    kernel_.launch(kWork, {{sizeof(cl_mem), nullptr, &memory_}, {sizeof(words_), &words_, nullptr}});
    device_.finish();
    ++done_;
    return clock.us();
  }

  bool is_right() final {
    const auto all = places();
    return std::all_of(all.begin(), all.end(), [this](size_t at) {
      return holds(device_, memory_->mem.get(), at, done_);
    });
  }

 private:
  [[nodiscard]] std::array<size_t, 3> places() const {
    const auto words = static_cast<size_t>(words_);  // it was made from one
    return {0, words / 2, words - kThreads};
  }

  Device& device_;
  const uint64_t words_;
  Kernel kernel_;
  const std::shared_ptr<Storage> memory_;
  int32_t done_ = 0;
};

// Another context on the same device, made with a hint.  It stays as long as the process, as all
// devices do.
Device& hinted_device(const Device& device, const Hints& hints) {
  static auto* made = new std::vector<std::unique_ptr<Device>>();
  const Hints before = wanted_hints();
  made->push_back(std::make_unique<Device>(device.platform(), device.id()));
  Device& own = *made->back();
  set_hints(hints);
  try {
    (void)own.context();  // takes the hints as they are now
  } catch (...) {
    set_hints(before);
    throw;
  }
  for (const HintUse& use : own.hint_uses()) {
    if (!use.given_by.empty()) continue;
    set_hints(before);
    TVM_FFI_THROW(RuntimeError) << use.reason;
  }
  set_hints(before);
  return own;
}

}  // namespace

std::unique_ptr<HostOperation> make_launch_operation(Device& device,
                                                     const json::Object& operation) {
  const std::string way = operation.at(ffi::String("way")).cast<std::string>();
  return std::make_unique<LaunchOperation>(device, way,
                                           number_of(operation, "count", kMostLaunches));
}

std::unique_ptr<HostOperation> make_hint_operation(Device& device, const json::Object& operation) {
  const std::string hint = operation.at(ffi::String("hint")).cast<std::string>();
  Hints hints;
  (hint == "performance" ? hints.performance : hints.priority) = Level::kHigh;
  return std::make_unique<LaunchOperation>(hinted_device(device, hints), "queue", 1);
}

std::unique_ptr<HostOperation> make_large_operation(Device& device, const json::Object& operation) {
  const size_t bytes = number_of(operation, "bytes", kMostMemory);
  return std::make_unique<LargeOperation>(device, std::max<size_t>(bytes, 4 * sizeof(Numbers)));
}

}  // namespace adrenoc_runtime::opencl
