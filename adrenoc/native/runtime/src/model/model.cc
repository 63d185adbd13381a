#include "model/model.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/dtype.h>
#include <tvm/runtime/device_api.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/stopwatch.h"
#include "launch/cancelling.h"
#include "model/choose_device.h"
#include "model/program.h"
#include "opencl/device.h"
#include "opencl/external_memory.h"

namespace adrenoc_runtime {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::DeviceAPI;
using tvm::runtime::Tensor;

// Records when each kernel runs, until it is asked for what it saw or goes away.
class Profiling {
 public:
  explicit Profiling(int device_id) : device_id_(device_id) { opencl::start_profiling(device_id_); }
  Profiling(const Profiling&) = delete;
  Profiling& operator=(const Profiling&) = delete;
  ~Profiling() {
    if (!running_) return;
    try {
      (void)stop();
    } catch (const std::exception&) {
      // What made the run fail is on its way, and tells more.
    }
  }
  // JSON: [kernel, start_ns, end_ns] of each launch.
  [[nodiscard]] std::string stop() {
    running_ = false;
    return opencl::stop_profiling(device_id_);
  }

 private:
  int device_id_;
  bool running_ = true;
};

// Whether what failed is the device's, and the model may compute elsewhere.
bool is_of_device(const Failure& failure) {
  return failure.status() == ADRENOC_NO_DEVICE || failure.status() == ADRENOC_DEVICE_FAILED ||
         failure.status() == ADRENOC_OUT_OF_MEMORY;
}

// What a decoder takes its number of tokens by (adrenoc/bundle/chat.py).
constexpr const char* kPastLength = "past_length";
constexpr size_t kCacheRank = 4;

// Copies on the device of what a run may leave half written.
class Copies {
 public:
  void take(const std::vector<Tensor>& originals) {
    for (const Tensor& original : originals) {
      Tensor copy =
          Tensor::Empty(ffi::Shape(original.Shape()), original.DataType(), original->device);
      copy.CopyFrom(original);
      pairs_.emplace_back(original, std::move(copy));
    }
  }
  void bring_back() {
    for (auto& [original, copy] : pairs_) original.CopyFrom(copy);
  }

 private:
  std::vector<std::pair<Tensor, Tensor>> pairs_;
};

}  // namespace

Model::Model(std::unique_ptr<Bundle> bundle, const LoadOptions& options)
    : bundle_(std::move(bundle)),
      cache_folder_(options.cache_folder),
      no_record_(options.no_record),
      cancel_within_ms_(options.cancel_within_ms) {
  const bool has_fallback = !bundle_->fallback_path().empty();
  if (has_fallback && options.device == "cpu") {
    load_on_cpu("the caller asked for it");
  } else if (!has_fallback || !options.device.empty()) {
    load_on_device(options);  // who names a device wants that one
  } else {
    try {
      load_on_device(options);
    } catch (const Failure& failure) {
      if (!is_of_device(failure)) throw;
      load_on_cpu(failure.what());
    } catch (const ffi::Error& error) {
      if (opencl::is_cancelled(error)) throw;
      load_on_cpu(error.message());
    }
  }
  // What a program that knows of one shape only expects: the bundle's own.
  signature_ = buckets().size() - 1;
  choose(whole_bucket(buckets(), signature_));
  show_last_run();
  if (cpu_ != nullptr || device_.device_type != kDLOpenCL) return;
  resident_bytes_ = resident_bytes();
  Residency::global().add(this);
  settle();
}

Model::~Model() { Residency::global().remove(this); }

opencl::Recording Model::recording() const {
  return no_record_ ? opencl::Recording::kOff : opencl::Recording::kBest;
}

void Model::choose(Chosen chosen) {
  chosen_ = std::move(chosen);
  bound_inputs_.assign(chosen_.inputs.size(), {});
  bound_outputs_.assign(chosen_.outputs.size(), {});
}

const Manifest& Model::chosen_manifest() const { return buckets()[chosen_.bucket].manifest; }

void Model::trim() {
  const std::lock_guard<std::mutex> lock(mutex_);
  forget_launches();
}

void Model::forget_launches() {
  for (Program& program : programs_) program.forget();
  if (session_ != nullptr) session_->forget();
}

const char* Model::notes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  notes_.clear();
  const auto add = [this](const std::string& note) {
    if (!note.empty()) notes_ += (notes_.empty() ? "" : "\n") + note;
  };
  if (cpu_ != nullptr) {
    add("the model computes on the CPU, by the code that its bundle carries: " + cpu_reason_);
  }
  if (device_.device_type == kDLOpenCL) {
    opencl::Device& device = opencl::device_at(device_.device_id);
    add(library_note_);
    add(edition_note_);
    add(other_gpu_note(manifest().target, device.info()));
    for (const std::string& note : opencl::to_notes(device.hint_uses())) add(note);
    add(memory_note());
  }
  if (!unsaved_programs_.empty()) {
    add("the built kernels are not kept, so the next start builds them again: " +
        unsaved_programs_);
  }
  add(built_ins_);
  return notes_.c_str();
}

void Model::run(uint64_t since) {
  at_turn(since, [this] { run_once(); });
}

void Model::check_bound() const {
  for (size_t i = 0; i < bound_inputs_.size(); ++i) {
    if (!bound_inputs_[i].is_there() && (cpu_ != nullptr || !is_state(i))) {
      refuse_argument({"input `", chosen_.inputs[i].name, "` is not bound"});
    }
  }
}

void Model::run_once() {
  if (cpu_ != nullptr) {
    run_on_cpu();
    return;
  }
  opencl::HandedOver memory(device_, bound_memory());
  const Tensors inputs = upload();
  const Stopwatch computing;
  const Tensors outputs = launch_cancellable(inputs, 1);
  synchronize();
  times_.compute_ms = last_run_ms_ = computing.ms();
  if (times_.runs == 0) times_.first_compute_ms = times_.compute_ms;

  const Stopwatch downloading;
  download(outputs);
  memory.give_back();
  times_.download_ms = downloading.ms();
  ++times_.runs;
}

Model::Pace Model::run_repeatedly(uint32_t runs) {
  if (runs == 0) refuse_argument("runs is 0, expected at least 1");
  return at_turn(cancels(), [this, runs]() -> Pace {
    if (cpu_ != nullptr) {
      const Stopwatch computing;
      for (uint32_t i = 0; i < runs; ++i) {
        if (cancelling().is_asked()) refuse_cancelled();
        run_on_cpu();
      }
      const double each_ms = computing.ms() / runs;
      return {each_ms, each_ms};
    }
    opencl::HandedOver memory(device_, bound_memory());
    const Tensors inputs = upload();
    synchronize();
    const Stopwatch computing;
    const Tensors outputs = launch_cancellable(inputs, runs);
    const double host_ms = computing.ms() / runs;
    synchronize();
    const double ms = computing.ms() / runs;
    last_run_ms_ = ms;
    download(outputs);
    memory.give_back();
    times_.runs += runs;
    return {ms, host_ms};
  });
}

Model::Verdict Model::verify() {
  return at_turn(cancels(), [this] { return prove(); });
}

const char* Model::profile() {
  return at_turn(cancels(), [this] {
    if (cpu_ != nullptr) {
      throw Failure(ADRENOC_UNSUPPORTED,
                    "the model computes on the CPU, where no kernels are timed");
    }
    opencl::HandedOver memory(device_, bound_memory());
    const Tensors inputs = upload();
    Profiling profiling(device_.device_id);
    const Tensors outputs = launch(inputs);
    profile_ = profiling.stop();
    download(outputs);
    memory.give_back();
    ++times_.runs;
    return profile_.c_str();
  });
}

Model::Tensors Model::upload() {
  check_bound();
  DeviceAPI::Get(device_)->SetDevice(device_);
  const Stopwatch uploading;
  begin_states();
  Tensors inputs = inputs_[chosen_.bucket];
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (bound_inputs_[i].memory.has_value()) {
      inputs[i] = *bound_inputs_[i].memory;
    } else if (bound_inputs_[i].host != nullptr) {
      upload_filled(chosen_.inputs[i], bound_inputs_[i].host, chosen_manifest().inputs[i],
                    &inputs[i], &scratch_);
    }
  }
  times_.upload_ms = uploading.ms();
  return inputs;
}

Model::Tensors Model::launch(const Tensors& inputs) {
  // What another bucket keeps for its next run is memory that this one may need.
  if (launched_ != chosen_.bucket) {
    programs_[launched_].forget();
    launched_ = chosen_.bucket;
    last_run_ms_ = -1;
  }
  return programs_[chosen_.bucket].launch(inputs);
}

void Model::check_output(const Tensor& tensor, const TensorSpec& spec) const {
  const ffi::Shape shape(spec.shape);
  if (tensor.Shape().size() == shape.size() &&
      std::equal(shape.begin(), shape.end(), tensor.Shape().begin()) &&
      tensor.DataType() == ffi::StringToDLDataType(spec.dtype)) {
    return;
  }
  refuse_bundle(
      {"model.so gives `", spec.name, "` another shape or dtype than the manifest promises"});
}

void Model::download(const Tensors& outputs) {
  const std::vector<TensorSpec>& specs = chosen_manifest().outputs;
  if (outputs.size() != specs.size()) {
    refuse_bundle(
        {"model.so gives ", outputs.size(), " outputs, the manifest promises ", specs.size()});
  }
  bool in_queue = false;
  for (size_t i = 0; i < specs.size(); ++i) {
    check_output(outputs[i], specs[i]);
    Bound& bound = bound_outputs_[i];
    if (bound.memory.has_value()) {
      bound.memory->CopyFrom(outputs[i]);
      in_queue = true;
    } else if (bound.host != nullptr) {
      download_cropped(outputs[i], specs[i], chosen_.outputs[i], bound.host, &scratch_);
    }
  }
  if (in_queue) synchronize();
}

adrenoc_times Model::times() const {
  const std::lock_guard<std::mutex> lock(shown_mutex_);
  return shown_times_;
}

void Model::show_last_run() noexcept {
  const std::lock_guard<std::mutex> lock(shown_mutex_);
  shown_times_ = times_;
  shown_history_ = cpu_ == nullptr ? programs_[launched_].history() : nullptr;
}

adrenoc_launching Model::launching() {
  const std::lock_guard<std::mutex> lock(shown_mutex_);
  launching_ = shown_history_ == nullptr ? opencl::LaunchReport{} : shown_history_->report();
  adrenoc_launching told{};
  told.launches = static_cast<uint32_t>(launching_.launches);
  told.api_calls = static_cast<uint32_t>(launching_.api_calls);
  told.host_ms = launching_.host_ms;
  told.mode = launching_.mode.c_str();
  told.reason = launching_.reason.c_str();
  told.submissions = static_cast<uint32_t>(launching_.pieces.count);
  told.longest_submission_ms = launching_.pieces.longest_ms;
  told.gap_ms = launching_.pieces.gap_ms;
  return told;
}

void Model::synchronize() const { DeviceAPI::Get(device_)->StreamSync(device_, nullptr); }

void Model::refuse_cancelled() const {
  throw Failure(ADRENOC_CANCELLED, ending_.is_late() ? "the deadline of the run has passed"
                                                     : "the call was cancelled");
}

double Model::piece_ms() const {
  if (cancel_within_ms_ <= 0) return 0;
  // What is over sooner than that can be one recording.
  const bool is_known = last_run_ms_ >= 0 && launched_ == chosen_.bucket;
  const bool is_short = is_known && last_run_ms_ <= cancel_within_ms_;
  return is_short ? 0 : cancel_within_ms_;
}

// Of a decoder, rows of caches from `past_length` on are written again by the next run.
Model::Tensors Model::changed_states(const Tensors& inputs) const {
  const std::vector<TensorSpec>& specs = chosen_manifest().inputs;
  const std::vector<std::string>& recurrent = chosen_manifest().recurrent;
  const bool is_decoder = place_of(specs, kPastLength).has_value();
  Tensors states;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_recurrent =
        std::find(recurrent.begin(), recurrent.end(), specs[i].name) != recurrent.end();
    const bool is_cache = is_decoder && !is_recurrent && specs[i].shape.size() == kCacheRank;
    if (is_state(i) && !is_cache && specs[i].bytes != 0) states.push_back(inputs[i]);
  }
  return states;
}

Model::Tensors Model::launch_cancellable(const Tensors& inputs, uint32_t runs) {
  opencl::Pieceable how;
  how.piece_ms = piece_ms();
  how.ends_within = how.piece_ms > 0 || opencl::submission_limit_ms() > 0;
  const opencl::Cancelling heeded = cancelling(how);
  const opencl::CancellingScope scope(&heeded);
  Copies before;
  if (runs > 1 || how.ends_within) before.take(changed_states(inputs));
  try {
    Tensors outputs;
    for (uint32_t i = 0; i < runs; ++i) {
      opencl::end_if_cancelled();
      outputs.clear();  // else the next run would need outputs of its own
      outputs = launch(inputs);
    }
    return outputs;
  } catch (const ffi::Error& error) {
    if (!opencl::is_cancelled(error)) throw;
    before.bring_back();
    // What the device still does may use memory of the app.
    synchronize();
    throw;
  }
}

}  // namespace adrenoc_runtime
