// What runs of a bound model tell: which way they went, why, and what they took of the host.
#include "launch/bound_run.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <utility>

#include "base/stopwatch.h"
#include "launch/cancelling.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;

constexpr const char* kMachineMode = "the virtual machine";

// So many replays with the same arguments, and they seem to stay.
constexpr size_t kRunsToStay = 2;

// A tensor on the same memory that nobody else refers to, so that it can be told who holds it.
Tensor own_view(const Tensor& tensor) {
  return tensor.CreateView(tensor.Shape(), tensor.DataType());
}

bool is_alike(const DLTensor& one, const DLTensor& other) {
  return one.ndim == other.ndim && std::equal(one.shape, one.shape + one.ndim, other.shape) &&
         one.dtype.code == other.dtype.code && one.dtype.bits == other.dtype.bits &&
         one.dtype.lanes == other.dtype.lanes && one.byte_offset == other.byte_offset;
}

bool is_empty(const Tensor& tensor) { return tensor->data == nullptr; }

constexpr size_t kMostSamples = 1000;

}  // namespace

BoundRun::BoundRun(ffi::Function main, const std::vector<ffi::AnyView>& arguments, int device_id,
                   Recording wish)
    : main_(std::move(main)), device_(device_at(device_id)), wish_(wish) {
  bind(arguments);
}

BoundRun::~BoundRun() {
  try {
    forget();
  } catch (const ffi::Error&) {
    // A device that failed has nothing under way.
  }
}

void BoundRun::bind(const std::vector<ffi::AnyView>& arguments) {
  for (const ffi::AnyView& argument : arguments) {
    if (argument.type_index() == ffi::TypeIndex::kTVMFFIDLTensorPtr &&
        !ffi::IsContiguous(*argument.cast<DLTensor*>())) {
      TVM_FFI_THROW(ValueError) << "Argument " << held_.size() << " of a run is not dense";
    }
    held_.emplace_back(argument);
  }
  for (const HeldArgument& held : held_) arguments_.push_back(held.view());
}

ffi::Any BoundRun::run() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Stopwatch watch;
  const uint64_t calls = api_calls();
  const uint64_t launches = kernel_launches();
  is_steady_ = true;
  ffi::Any result = compute();
  history_->note(
      {mode_, reason_, kernel_launches() - launches, api_calls() - calls, watch.ms(), pieces_},
      is_steady_);
  return result;
}

ffi::Any BoundRun::compute() {
  reason_.clear();
  pieces_ = {};
  if (wish_ == Recording::kOff) {
    reason_ = "it was not asked for";
    return run_machine();
  }
  if (!captured_.empty()) {
    if (outputs_are_held()) {
      reason_ = "the outputs of the run before are still held";
      return run_machine();
    }
    if (conditions_hold() && replay()) return result_;
    forget_locked();
  }
  if (obstacle_.empty()) return capture();
  reason_ = obstacle_;
  sites_.begin();
  const CallSitesScope scope(&sites_);
  return run_machine();
}

ffi::Any BoundRun::run_machine() {
  mode_ = kMachineMode;
  ffi::Any result;
  main_.CallPacked(arguments_.data(), static_cast<int>(arguments_.size()), &result);
  return result;
}

// Runs on the virtual machine and notes what that launches.
ffi::Any BoundRun::capture() {
  is_steady_ = false;
  reason_ = "the first run";
  Capture noted(device_);
  ffi::Any result;
  {
    const CaptureScope scope(&noted);
    result = run_machine();
  }
  if (noted.launches().empty()) noted.obstruct("it launches no kernel");
  obstacle_ = noted.obstacle();
  if (!obstacle_.empty()) return result;
  if (const auto one = result.as<Tensor>()) {
    if (is_empty(*one)) return obstacle_ = "its output is empty", result;
    result_ = own_view(*one);
  } else {
    Array views;
    for (const Tensor& tensor : result.cast<Array>()) {
      if (is_empty(tensor)) return obstacle_ = "one of its outputs is empty", result;
      views.push_back(own_view(tensor));
    }
    result_ = views;
  }
  captured_ = std::move(noted.launches());
  steps_ = std::move(noted.steps());
  conditions_ = std::move(noted.conditions());
  return result_;
}

void BoundRun::forget() {
  const std::lock_guard<std::mutex> lock(mutex_);
  forget_locked();
}

void BoundRun::forget_locked() {
  if (captured_.empty()) return;
  // Recorded commands may be under way.
  if (kept_ != nullptr) device_.finish();
  drop_recordings();
  kept_.reset();
  captured_.clear();
  steps_.clear();
  conditions_.clear();
  recording_reason_.clear();
  result_ = nullptr;
}

bool BoundRun::outputs_are_held() const {
  if (result_.as<Tensor>().has_value()) {
    // One reference is in result_.
    return result_.cast<const ffi::Object*>()->use_count() > 1;
  }
  if (result_.cast<const ffi::Object*>()->use_count() > 1) return true;
  const auto* array = result_.as<ffi::ArrayObj>();
  return std::any_of(array->begin(), array->end(), [](const ffi::Any& field) {
    return field.cast<const ffi::Object*>()->use_count() > 1;
  });
}

bool BoundRun::conditions_hold() const {
  return std::all_of(conditions_.begin(), conditions_.end(),
                     [](const auto& condition) { return condition(); });
}

// Whether the launches were given to the device again; where not, reason_ says why.
bool BoundRun::replay() {
  QueueLock queue = device_.lock_queue();
  const bool timed = device_.profiler().is_recording();
  // What stands between launches in a profile comes from the virtual machine.
  if (timed && !(conditions_.empty() && steps_.empty())) return false;
  try {
    prepare(queue);
    const double limit_ms = piece_limit_ms();
    if (!timed && limit_ms > 0) return replay_paced(queue, limit_ms);
    if (!timed && trial_.is_under_way() && replay_for_trial(queue)) return true;
    if (!timed && recorded_ != nullptr && replay_recorded(queue)) return true;
    kept_->enqueue(queue);
    mode_ = kept_->name();
    reason_ = recording_reason_;
    return true;
  } catch (const ffi::Error& error) {
    if (is_cancelled(error)) throw;
    obstacle_ = error.message();
    return false;
  }
}

bool BoundRun::replay_recorded(QueueLock& queue) {
  try {
    recorded_->enqueue(queue);
  } catch (const ffi::Error& error) {
    // Launching everything from the start writes the same results again.
    recording_reason_ = std::string(recorded_->name()) + ": " + error.message();
    recorded_.reset();
    is_steady_ = false;
    return false;
  }
  mode_ = recorded_->name();
  reason_ = recording_reason_;
  return true;
}

// A recording is one submission, however long.
bool BoundRun::replay_paced(QueueLock& queue, double limit_ms) {
  kept_->enqueue_paced(queue, limit_ms);
  pieces_ = kept_->pieces();
  mode_ = kept_->name();
  const std::string beyond = kept_->beyond(limit_ms);
  reason_ = "submissions have a ceiling, and a recording cannot be cut" +
            (beyond.empty() ? "" : "; " + beyond);
  return true;
}

bool BoundRun::replay_for_trial(QueueLock& queue) {
  is_steady_ = false;
  reason_ = "the ways to launch are being tried";
  const char* name = trial_.run(queue);
  if (name != nullptr) mode_ = name;
  if (!trial_.is_under_way()) {
    recorded_ = trial_.take_best(&recording_reason_);
    winner_ = recorded_ == nullptr ? "" : recorded_->name();
    is_tried_ = true;
    trial_ = Trial();
  }
  return name != nullptr;
}

// Makes what is replayed: at the first replay, when the queue was exchanged, and when an argument
// was, once it seems to stay.
void BoundRun::prepare(const QueueLock& queue) {
  if (kept_ == nullptr) {
    is_steady_ = false;
    kept_ = std::make_unique<KeptLaunches>(device_, captured_, steps_);
    same_runs_ = kRunsToStay;
  }
  if (queue_number_ != device_.queue_number()) {
    queue_number_ = device_.queue_number();
    drop_recordings();
  }
  if (piece_limit_ms() > 0) return;
  if (is_recorded_ || same_runs_++ < kRunsToStay) return;
  is_steady_ = false;
  is_recorded_ = true;
  record(queue);
}

void BoundRun::drop_recordings() {
  recorded_.reset();
  trial_ = Trial();
  is_recorded_ = false;
}

void BoundRun::record(const QueueLock& queue) {
  if (wish_ == Recording::kKept) {
    recording_reason_ = "recording was not asked for";
    return;
  }
  if (is_tried_ && winner_.empty()) return;
  recording_reason_.clear();
  std::vector<std::unique_ptr<Replay>> made;
  // Qualcomm's own extension first: its drivers had it years before the other one.
  struct Way {
    const char* name;
    Record* make;
  };
  for (const auto& [name, make] : {Way{"a recordable queue", record_recordable_queue},
                                   Way{"a command buffer", record_command_buffer}}) {
    if (is_tried_ && winner_ != name) continue;
    try {
      made.push_back(record_ranges(device_, queue.get(), *kept_, make));
    } catch (const ffi::Error& error) {
      if (!recording_reason_.empty()) recording_reason_ += "; ";
      recording_reason_ += std::string(name) + ": " + error.message();
    }
  }
  if (made.empty()) return;
  recording_reason_.clear();
  if (wish_ == Recording::kAlways || is_tried_) {
    recorded_ = std::move(made.front());
  } else {
    trial_ = Trial(*kept_, std::move(made));
  }
}

void BoundRun::rebind(size_t index, const Tensor& tensor) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (index >= arguments_.size() || !arguments_[index].as<Tensor>().has_value()) {
    TVM_FFI_THROW(ValueError) << "A run has no tensor as argument " << index;
  }
  const auto old = arguments_[index].cast<Tensor>();
  const DLTensor &before = *old.operator->(), &after = *tensor.operator->();
  if (before.data == after.data) return;
  const auto* from = static_cast<const Descriptor*>(before.data);
  const auto* to = static_cast<const Descriptor*>(after.data);
  if (after.device.device_type != before.device.device_type ||
      after.device.device_id != before.device.device_id || !is_alike(before, after) ||
      from->convention() != to->convention()) {
    TVM_FFI_THROW(ValueError) << "Argument " << index << " of a run can only be bound to a tensor "
                              << "of the same shape, dtype and kind of memory";
  }
  held_[index] = HeldArgument(tensor);
  arguments_[index] = held_[index].view();
  if (captured_.empty()) return;
  const uint64_t number = from->storage()->number;
  if (!steps_.empty() || is_shared(number, index)) {
    forget_locked();  // which launches and steps mean this argument is not known
  } else {
    exchange(number, to->storage());
  }
}

// Whether an argument's memory is that of another one too, or of a result.
bool BoundRun::is_shared(uint64_t number, size_t index) const {
  const auto is_same = [number](const Tensor& tensor) {
    return static_cast<const Descriptor*>(tensor->data)->storage()->number == number;
  };
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const auto other = arguments_[i].as<Tensor>();
    if (i != index && other.has_value() && !is_empty(*other) && is_same(*other)) return true;
  }
  if (const auto one = result_.as<Tensor>()) return is_same(*one);
  const auto several = result_.cast<Array>();
  return std::any_of(several.begin(), several.end(), is_same);
}

void BoundRun::exchange(uint64_t old_number, const std::shared_ptr<Storage>& storage) {
  // A recording may be under way that reads the arguments as they were.
  if (recorded_ != nullptr || trial_.is_under_way()) device_.finish();
  drop_recordings();
  same_runs_ = 0;
  if (wish_ != Recording::kKept && !(is_tried_ && winner_.empty())) {
    recording_reason_ = "an argument was bound to other memory";
  }
  for (size_t launch = 0; launch < captured_.size(); ++launch) {
    std::vector<CapturedArgument>& arguments = captured_[launch].arguments;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].storage == nullptr || arguments[i].storage->number != old_number) continue;
      arguments[i].storage = storage;
      if (kept_ != nullptr) kept_->set_argument(launch, i, arguments[i].get());
    }
  }
}

Recording recording_of(const std::string& name) {
  if (name == "best") return Recording::kBest;
  if (name == "always") return Recording::kAlways;
  if (name == "kept") return Recording::kKept;
  if (name == "off") return Recording::kOff;
  TVM_FFI_THROW(ValueError) << "recording is \"" << name
                            << "\", expected best, always, kept or off";
  TVM_FFI_UNREACHABLE();
}

ffi::json::Object LaunchReport::to_json() const {
  ffi::json::Object json;
  json.Set("mode", ffi::String(mode));
  json.Set("reason", ffi::String(reason));
  json.Set("launches", static_cast<int64_t>(launches));
  json.Set("api_calls", static_cast<int64_t>(api_calls));
  json.Set("host_ms", host_ms);
  return json;
}

void LaunchHistory::note(const LaunchReport& run, bool is_steady) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // A run that is profiled, or makes what later runs use, says nothing about those.
  if (run.mode != report_.mode) host_ms_.clear();
  const bool says_nothing = !is_steady && !host_ms_.empty();
  const double host_ms = is_steady || says_nothing ? report_.host_ms : run.host_ms;
  const uint64_t calls = says_nothing ? report_.api_calls : run.api_calls;
  report_ = run;
  report_.host_ms = host_ms;
  report_.api_calls = calls;
  if (!is_steady) return;
  if (host_ms_.size() == kMostSamples) host_ms_.clear();
  host_ms_.push_back(run.host_ms);
}

LaunchReport LaunchHistory::report() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  LaunchReport report = report_;
  if (!host_ms_.empty()) {
    std::vector<double> sorted = host_ms_;
    std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
    report.host_ms = sorted[sorted.size() / 2];
  }
  return report;
}

}  // namespace adrenoc_runtime::opencl
