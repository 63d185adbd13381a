// Whether the numbers of candidate kernels are right, and how long they take; and the same of what
// a run does beside computing.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/runtime/timer.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/failure.h"
#include "base/json.h"
#include "base/stopwatch.h"
#include "base/utf8.h"
#include "launch/copy.h"
#include "launch/kernel.h"
#include "launch/replay.h"
#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

// A candidate: its kernel, how it is launched, and the tensors, of which the last is written.
struct Candidate {
  Kernel* kernel;
  WorkSize work;
  std::vector<const DLTensor*> arguments;
};

struct TrialSettings {
  // What the outputs are compared with, on the host; null for no comparison.
  const DLTensor* reference = nullptr;
  double tolerance = 0;
  // One candidate alone that takes longer is not measured further; 0 for no such limit.
  double stop_us = 0;
  // Outputs are quanta, four to a word.
  bool is_bytes = false;
};

// A candidate is to blame: `kind` is unstable, wrong or group, `index` says which one.
class RefusedCandidate : public std::runtime_error {
 public:
  RefusedCandidate(const char* kind, size_t index, const std::string& detail)
      : std::runtime_error(detail), kind_(kind), index_(index) {}
  [[nodiscard]] const char* kind() const noexcept { return kind_; }
  [[nodiscard]] size_t index() const noexcept { return index_; }

 private:
  const char* kind_;
  size_t index_;
};

constexpr size_t kMeasurements = 7;
// Long kernels vary less, in parts: fewer measurements tell as much.
constexpr size_t kFewestMeasurements = 3;
constexpr double kLongMeasuring_us = 300e3;

// Outputs on the host, of all trials of a thread: where a machine is virtual, fresh memory costs
// more than what is copied into it.
struct Scratch {
  std::vector<char> old;
  std::vector<char> value;
  std::vector<char> again;

  void resize(size_t bytes) {
    for (std::vector<char>* part : {&old, &value, &again}) part->resize(bytes);
  }
};

constexpr double kMostQuanta = 255;

// A number of an operation, from 1 to `most`.
inline size_t number_of(const Json& operation, const char* key, size_t most) {
  const int64_t number = operation.at(key).integer();
  if (number <= 0 || static_cast<uint64_t>(number) > most) {
    TVM_FFI_THROW(ValueError) << "An operation has the " << key << " " << number;
  }
  return static_cast<size_t>(number);
}

// The largest difference of two dense tensors of `elements`, over the largest finite value that is
// wanted; infinite where one has a NaN or an infinity and the other has none.  Of `kDLUInt` with 8
// bits, which are quanta, it is over 255.  Throws ValueError for a type that no kernel writes.
inline double output_difference(const char* got, const char* wanted, size_t elements,
                                DLDataType type) {
  if (std::memcmp(got, wanted, elements * ((type.bits + 7) / 8)) == 0) return 0;
  type.lanes = 1;
  const std::string name = tvm::ffi::DLDataTypeToString(type);
  const Dtype* const dtype = find_dtype(name);
  if (dtype == nullptr || dtype->read == nullptr) {
    TVM_FFI_THROW(ValueError) << "Outputs of type " << name << " cannot be compared";
  }
  double largest_wanted = 0;
  double largest_off = 0;
  for (size_t i = 0; i < elements; ++i) {
    const double a = dtype->number_at(i, got);
    const double b = dtype->number_at(i, wanted);
    if (std::isfinite(a) != std::isfinite(b)) {
      largest_off = std::numeric_limits<double>::infinity();
      break;
    }
    if (!std::isfinite(b)) continue;
    largest_wanted = std::max(largest_wanted, std::fabs(b));
    largest_off = std::max(largest_off, std::fabs(a - b));
  }
  if (type.code == kDLUInt && type.bits == 8) return largest_off / kMostQuanta;
  return largest_wanted == 0 ? largest_off : largest_off / largest_wanted;
}

namespace json = tvm::ffi::json;

// Old contents of the output, every byte: numbers that are finite in each type.
constexpr unsigned char kOldContents[] = {0x3c, 0x41, 0x46};
// A measurement repeats a short kernel until it takes so long.
constexpr double kMeasurement_us = 3000;
constexpr double kMostRepeats = 10000;

inline size_t dense_bytes(const DLTensor& tensor) {
  size_t elements = 1;
  for (int i = 0; i < tensor.ndim; ++i) elements *= static_cast<size_t>(tensor.shape[i]);
  return elements * ((tensor.dtype.bits * tensor.dtype.lanes + 7) / 8);
}

// One candidate at work.
class TrialRun {
 public:
  TrialRun(const Candidate& candidate, size_t index, Scratch* scratch)
      : candidate_(candidate), index_(index), scratch_(*scratch) {
    for (size_t i = 0; i < candidate_.arguments.size(); ++i) {
      const auto& descriptor = *static_cast<const Descriptor*>(candidate_.arguments[i]->data);
      arguments_.push_back({sizeof(cl_mem), nullptr, &descriptor.storage()});
    }
  }

  // Whether more is to be measured: not where it is slower than `stop_us`.
  bool replay(double stop_us) {
    scratch_.resize(dense_bytes(output()));
    for (size_t i = 0; i < std::size(kOldContents); ++i) {
      fill(kOldContents[i]);
      const double time_us = timed_us(1);
      read(i == 0 ? &scratch_.value : &scratch_.again);
      if (i == 0) continue;  // the first run of a kernel takes some drivers longer
      if (scratch_.again != scratch_.value) {
        throw RefusedCandidate(
            "unstable", index_,
            "different outputs in " + std::to_string(i + 1) + " runs on the same input");
      }
      shortest_us_ = i == 1 ? time_us : std::min(shortest_us_, time_us);
      if (stop_us > 0 && time_us > stop_us) return false;
    }
    return true;
  }

  // The output of the last replay of any run.
  void compare(const TrialSettings& settings) {
    if (settings.reference == nullptr) return;
    const DLTensor& reference = *settings.reference;
    const std::vector<char>& value = scratch_.value;
    if (dense_bytes(reference) != value.size()) {
      TVM_FFI_THROW(ValueError) << "The reference has " << dense_bytes(reference)
                                << " bytes, the output " << value.size();
    }
    DLDataType type = output().dtype;
    if (settings.is_bytes) type = DLDataType{kDLUInt, 8, 1};
    const size_t element_bytes = static_cast<size_t>(type.bits + 7) / 8;
    const auto* wanted = static_cast<const char*>(reference.data) + reference.byte_offset;
    error_ = output_difference(value.data(), wanted, value.size() / element_bytes, type);
    if (!(error_ <= settings.tolerance)) {
      throw RefusedCandidate("wrong", index_,
                             "off by " + number_text("%.1e", error_) +
                                 " of the largest value, at most " +
                                 number_text("%.1e", settings.tolerance));
    }
  }

  // One measurement.
  void measure() {
    const double repeats = std::ceil(kMeasurement_us / std::max(shortest_us_, 0.1));
    const auto count = static_cast<size_t>(std::clamp(repeats, 1.0, kMostRepeats));
    times_us_.push_back(timed_us(count) / static_cast<double>(count));
  }

  [[nodiscard]] double shortest_us() const { return shortest_us_; }
  void take_shortest() { times_us_.push_back(shortest_us_); }
  [[nodiscard]] double last_us() const { return times_us_.back(); }
  [[nodiscard]] double error() const { return error_; }
  [[nodiscard]] bool by_host() const { return by_host_; }
  [[nodiscard]] json::Array times_us() const {
    json::Array times;
    for (const double time_us : times_us_) times.push_back(time_us);
    return times;
  }

 private:
  [[nodiscard]] const DLTensor& output() const { return *candidate_.arguments.back(); }

  void fill(unsigned char byte) {
    std::memset(scratch_.old.data(), byte, scratch_.old.size());
    copy_tensor(on_host(output(), scratch_.old.data()), output());
  }

  void read(std::vector<char>* to) { copy_tensor(output(), on_host(output(), to->data())); }

  // By the device's own clock; by the host's where all events tell the same time (Mesa 22.3).
  double timed_us(size_t launches) {
    tvm::runtime::Timer timer = tvm::runtime::Timer::Start(output().device);
    const Stopwatch clock;
    for (size_t i = 0; i < launches; ++i) launch();
    timer->Stop();
    const int64_t elapsed_ns = timer->SyncAndGetElapsedNanos();
    if (elapsed_ns > 0) return static_cast<double>(elapsed_ns) * 1e-3;
    by_host_ = true;
    return clock.ms() * 1e3;
  }

  void launch() {
    try {
      candidate_.kernel->launch(candidate_.work, arguments_);
    } catch (const tvm::ffi::Error& error) {
      // The device takes no such work-group of this kernel: nothing has run.
      if (error.kind() == "ValueError") throw RefusedCandidate("group", index_, error.message());
      throw;
    }
  }

  const Candidate& candidate_;
  const size_t index_;
  Scratch& scratch_;
  std::vector<KernelArgument> arguments_;
  double shortest_us_ = 0;
  double error_ = 0;
  bool by_host_ = false;
  std::vector<double> times_us_;
};

inline json::Object trial_result(const std::vector<TrialRun>& runs) {
  json::Array times;
  json::Array errors;
  for (const TrialRun& run : runs) {
    times.push_back(run.times_us());
    errors.push_back(run.error());
  }
  json::Object result;
  result.Set("times_us", times);
  result.Set("errors", errors);
  const auto by_host = [](const TrialRun& run) { return run.by_host(); };
  if (std::any_of(runs.begin(), runs.end(), by_host)) result.Set("by_host", true);
  return result;
}

// Runs each candidate several times onto different old contents, where its output has to be equal
// in every bit and near the reference; then all of them in turn, for what disturbs the device
// disturbs all.  Returns {"times_us": [[...]...], "errors": [...]}, with "by_host": true where
// some times are the host's, for the device's events tell of none.  Throws RefusedCandidate, and
// RuntimeError where the device fails.
[[nodiscard]] inline tvm::ffi::json::Object measure_candidates(
    const std::vector<Candidate>& candidates, const TrialSettings& settings) {
  const double stop_us = candidates.size() == 1 ? settings.stop_us : 0;
  std::vector<TrialRun> runs;
  runs.reserve(candidates.size());
  thread_local Scratch scratch;
  for (size_t i = 0; i < candidates.size(); ++i) runs.emplace_back(candidates[i], i, &scratch);
  for (TrialRun& run : runs) {
    const bool is_slow = !run.replay(stop_us);
    run.compare(settings);
    if (!is_slow) continue;
    run.take_shortest();
    return trial_result(runs);
  }
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (size_t i = 0; i < kMeasurements; ++i) {
    for (TrialRun& run : runs) run.measure();
    if (stop_us > 0 && runs.front().last_us() > stop_us) break;
    const double spent_us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    if (i + 1 >= kFewestMeasurements && spent_us > kLongMeasuring_us) break;
  }
  return trial_result(runs);
}

namespace ffi = tvm::ffi;

class HostOperation {
 public:
  virtual ~HostOperation() = default;

  // Does it once and returns the microseconds until it is done.  Throws RuntimeError where the
  // device fails.
  [[nodiscard]] virtual double timed_us() = 0;

  // Whether what it brought is right, after any number of times.
  [[nodiscard]] virtual bool is_right() = 0;
};

constexpr size_t kOperationRounds = 7;

constexpr size_t kMostLaunches = 4096;
constexpr auto kMostMemory =
    static_cast<size_t>(std::min<uint64_t>(uint64_t{1} << 40, std::numeric_limits<size_t>::max()));

constexpr size_t kThreads = 64;

using Numbers = std::array<int32_t, kThreads>;

constexpr const char* kCount =
    "__kernel void operation(__global int* x) { x[get_global_id(0)] += 1; }\n";

constexpr const char* kName = "operation";

// Candidates share no programs, so they have no constants.
inline Kernel built_kernel(Device& device, const std::string& name, const std::string& text) {
  auto program = std::make_shared<const BuiltProgram>(device, std::vector<std::string>{name},
                                                      std::vector<const std::string*>{&text});
  return {device, name, std::move(program), KernelText{name, {}}, 0};
}

inline std::shared_ptr<Storage> zeros(Device& device, size_t bytes) {
  auto storage = std::make_shared<Storage>();
  storage->spec = StorageSpec::buffer(bytes);
  // Of its own: a pool would keep it.
  storage->mem = new_buffer(device.context(), bytes);
  return storage;
}

inline void write_numbers(Device& device, cl_mem memory, size_t at, const Numbers& numbers) {
  const QueueLock queue = device.lock_queue();
  ADRENOC_CL_CALL(clEnqueueWriteBuffer, queue.get(), memory, CL_TRUE, at * sizeof(int32_t),
                  sizeof(numbers), numbers.data(), 0, nullptr, nullptr);
}

inline bool holds(Device& device, cl_mem memory, size_t at, int32_t wanted) {
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
        kernel_(built_kernel(device, kName, kCount)),
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

// Adds to the first, the middle and the last numbers of a buffer.
constexpr const char* kEnds =
    "__kernel void operation(__global int* x, ulong words) {\n"
    "  const ulong t = get_global_id(0);\n"
    "  x[t] += 1;\n  x[words / 2 + t] += 1;\n  x[words - 64 + t] += 1;\n}\n";

class LargeOperation final : public HostOperation {
 public:
  LargeOperation(Device& device, size_t bytes)
      : device_(device),
        words_(bytes / sizeof(int32_t)),
        kernel_(built_kernel(device, kName, kEnds)),
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
inline Device& hinted_device(const Device& device, const Hints& hints) {
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

// Throws ffi::Error with the reason why it cannot be done here.
inline std::unique_ptr<HostOperation> make_operation(Device& device, const Json& asked) {
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
  refuse_bundle({"there is no operation \"", name, "\""});
}

// Does each operation once, then all in turn several times.  An operation is one of
//     {"operation": "launches", "way": WAY, "count": N}  N small kernels, until the last has ended
//     {"operation": "hint", "hint": "performance" | "priority"}  a kernel on a device made with it
//     {"operation": "large", "bytes": N}  one kernel on both ends of such a buffer
// where WAY is queue, recording or command_buffer.  Returns what `measure_candidates` does.  Throws
// RefusedCandidate: "refused" with the reason why an operation cannot be done here, "wrong" where
// it brings other numbers; RuntimeError where the device fails.
[[nodiscard]] inline tvm::ffi::json::Object measure_host_operations(Device& device,
                                                                    const Json::List& requests) {
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
