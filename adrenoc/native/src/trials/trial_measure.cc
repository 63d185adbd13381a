#include "trials/trial_measure.h"

#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/runtime/timer.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "base/stopwatch.h"
#include "base/utf8.h"
#include "launch/copy.h"

namespace adrenoc_runtime::opencl {
namespace {

constexpr double kMostQuanta = 255;

double number_of(float value) { return static_cast<double>(value); }
double number_of(double value) { return value; }
template <typename Integer>
double number_of(Integer value) {
  return static_cast<double>(value);
}

struct Difference {
  double largest_wanted = 0;
  double largest_off = 0;
};

template <typename Element>
Difference difference_of(const void* got, const void* wanted, size_t elements) {
  const auto* ours = static_cast<const Element*>(got);
  const auto* theirs = static_cast<const Element*>(wanted);
  Difference found;
  for (size_t i = 0; i < elements; ++i) {
    const double a = number_of(ours[i]);
    const double b = number_of(theirs[i]);
    if (std::isfinite(a) != std::isfinite(b)) {
      found.largest_off = std::numeric_limits<double>::infinity();
      return found;
    }
    if (!std::isfinite(b)) continue;
    found.largest_wanted = std::max(found.largest_wanted, std::fabs(b));
    found.largest_off = std::max(found.largest_off, std::fabs(a - b));
  }
  return found;
}

Difference difference_of_type(const void* got, const void* wanted, size_t elements,
                              DLDataType type) {
  if (type.code == kDLFloat && type.bits == 16) return difference_of<Half>(got, wanted, elements);
  if (type.code == kDLFloat && type.bits == 32) return difference_of<float>(got, wanted, elements);
  if (type.code == kDLFloat && type.bits == 64) return difference_of<double>(got, wanted, elements);
  const bool is_signed = type.code == kDLInt;
  if (is_signed || type.code == kDLUInt || type.code == kDLBool) {
    if (type.bits <= 8) {
      return is_signed ? difference_of<int8_t>(got, wanted, elements)
                       : difference_of<uint8_t>(got, wanted, elements);
    }
    if (type.bits == 16) {
      return is_signed ? difference_of<int16_t>(got, wanted, elements)
                       : difference_of<uint16_t>(got, wanted, elements);
    }
    if (type.bits == 32) {
      return is_signed ? difference_of<int32_t>(got, wanted, elements)
                       : difference_of<uint32_t>(got, wanted, elements);
    }
    if (type.bits == 64) {
      return is_signed ? difference_of<int64_t>(got, wanted, elements)
                       : difference_of<uint64_t>(got, wanted, elements);
    }
  }
  TVM_FFI_THROW(ValueError) << "Outputs of type " << tvm::ffi::DLDataTypeToString(type)
                            << " cannot be compared";
  TVM_FFI_UNREACHABLE();
}

// The largest difference of two dense tensors of `elements`, over the largest finite value that is
// wanted; infinite where one has a NaN or an infinity and the other has none.  Of `kDLUInt` with 8
// bits, which are quanta, it is over 255.  Throws ValueError for a type that no kernel writes.
double output_difference(const void* got, const void* wanted, size_t elements, DLDataType type) {
  if (std::memcmp(got, wanted, elements * ((type.bits + 7) / 8)) == 0) return 0;
  const Difference found = difference_of_type(got, wanted, elements, type);
  if (type.code == kDLUInt && type.bits == 8) return found.largest_off / kMostQuanta;
  return found.largest_wanted == 0 ? found.largest_off : found.largest_off / found.largest_wanted;
}

namespace json = tvm::ffi::json;

// Old contents of the output, every byte: numbers that are finite in each type.
constexpr unsigned char kOldContents[] = {0x3c, 0x41, 0x46};
constexpr size_t kMeasurements = 7;
// Long kernels vary less, in parts: fewer measurements tell as much.
constexpr size_t kFewestMeasurements = 3;
constexpr double kLongMeasuring_us = 300e3;
// A measurement repeats a short kernel until it takes so long.
constexpr double kMeasurement_us = 3000;
constexpr double kMostRepeats = 10000;

size_t dense_bytes(const DLTensor& tensor) {
  size_t elements = 1;
  for (int i = 0; i < tensor.ndim; ++i) elements *= static_cast<size_t>(tensor.shape[i]);
  return elements * ((tensor.dtype.bits * tensor.dtype.lanes + 7) / 8);
}

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

json::Object trial_result(const std::vector<TrialRun>& runs) {
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

}  // namespace

json::Object measure_candidates(const std::vector<Candidate>& candidates,
                                const TrialSettings& settings) {
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

}  // namespace adrenoc_runtime::opencl
