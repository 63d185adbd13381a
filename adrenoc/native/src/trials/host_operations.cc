#include "trials/host_operations.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/failure.h"
#include "base/stopwatch.h"
#include "launch/kernel.h"
#include "launch/replay.h"
#include "opencl/hints.h"
#include "trials/trial_measure.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

constexpr size_t kThreads = 64;
constexpr size_t kMostLaunches = 4096;
constexpr auto kMostMemory =
    static_cast<size_t>(std::min<uint64_t>(uint64_t{1} << 40, std::numeric_limits<size_t>::max()));
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

class HostOperation {
 public:
  virtual ~HostOperation() = default;

  // Does it once and returns the microseconds until it is done.  Throws RuntimeError where the
  // device fails.
  [[nodiscard]] virtual double timed_us() = 0;

  // Whether what it brought is right, after any number of times.
  [[nodiscard]] virtual bool is_right() = 0;
};

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
    const Stopwatch clock;
    {
      QueueLock queue = device_.lock_queue();
      way.enqueue(queue);
    }
    device_.finish();
    done_ += static_cast<int32_t>(count_);
    return clock.ms() * 1e3;
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
    const Stopwatch clock;
    kernel_.launch(kWork,
                   {{sizeof(cl_mem), nullptr, &memory_}, {sizeof(words_), &words_, nullptr}});
    device_.finish();
    ++done_;
    return clock.ms() * 1e3;
  }

  bool is_right() final {
    const auto all = places();
    return std::all_of(all.begin(), all.end(),
                       [this](size_t at) { return holds(device_, memory_->mem.get(), at, done_); });
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

constexpr size_t kOperationRounds = 7;

// A number of an operation, from 1 to `most`.
size_t number_of(const Json& operation, const char* key, size_t most) {
  const int64_t number = operation.at(key).integer();
  if (number <= 0 || static_cast<uint64_t>(number) > most) {
    TVM_FFI_THROW(ValueError) << "An operation has the " << key << " " << number;
  }
  return static_cast<size_t>(number);
}

// Throws ffi::Error with the reason why it cannot be done here.
std::unique_ptr<HostOperation> make_operation(Device& device, const Json& asked) {
  const std::string& name = asked.at("operation").text();
  if (name == "launches") {
    const size_t count = number_of(asked, "count", kMostLaunches);
    return std::make_unique<LaunchOperation>(device, asked.at("way").text(), count);
  }
  if (name == "hint") {
    Hints hints;
    const bool is_clock = asked.at("hint").text() == "performance";
    (is_clock ? hints.performance : hints.priority) = Level::kHigh;
    return std::make_unique<LaunchOperation>(hinted_device(device, hints), "queue", 1);
  }
  if (name == "large") {
    const size_t bytes = number_of(asked, "bytes", kMostMemory);
    return std::make_unique<LargeOperation>(device, std::max<size_t>(bytes, 4 * sizeof(Numbers)));
  }
  refuse_bundle("there is no operation \"" + name + "\"");
}

}  // namespace

json::Object measure_host_operations(Device& device, const Json::List& requests) {
  std::vector<std::unique_ptr<HostOperation>> operations;
  for (const Json& request : requests) {
    try {
      operations.push_back(make_operation(device, request));
    } catch (const ffi::Error& error) {
      throw RefusedCandidate("refused", operations.size(), error.message());
    }
    (void)operations.back()->timed_us();  // the first time of anything takes longer
  }
  std::vector<json::Array> times(operations.size());
  for (size_t round = 0; round < kOperationRounds; ++round) {
    for (size_t i = 0; i < operations.size(); ++i) times[i].push_back(operations[i]->timed_us());
  }
  json::Array all;
  json::Array errors;
  for (size_t i = 0; i < operations.size(); ++i) {
    if (!operations[i]->is_right()) throw RefusedCandidate("wrong", i, "it brings other numbers");
    all.push_back(times[i]);
    errors.push_back(0.0);
  }
  json::Object result;
  result.Set("times_us", all);
  result.Set("errors", errors);
  return result;
}

}  // namespace adrenoc_runtime::opencl
