// How a model comes to compute: on a device, by the kernels of its own GPU or the common ones, or
// where no OpenCL device computes, by the code for the CPU that its bundle carries.  And what it
// holds on the device: moved there, given up for others, and brought back.
#include <tvm/runtime/device_api.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/stopwatch.h"
#include "base/utf8.h"
#include "clml/backend.h"
#include "clml/module.h"
#include "model/choose_device.h"
#include "model/model.h"

namespace adrenoc_runtime {
namespace {

void add_report(const opencl::BuildReport& one, opencl::BuildReport* all) {
  all->hits += one.hits;
  all->misses += one.misses;
  all->damaged += one.damaged;
  if (!one.unsaved.empty()) all->unsaved = one.unsaved;
  if (!one.built_ins.empty()) all->built_ins = one.built_ins;
}

using tvm::runtime::Tensor;

std::string shown_mib(uint64_t bytes) {
  return number_text("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

void Model::load_on_device(const LoadOptions& options) {
  // Before the device is used, whose context is made by them.
  opencl::set_hints(options.hints);
  const ChosenDevice chosen = choose_device(options.device, options.opencl_library);
  library_note_ = chosen.note;
  if (chosen.device.device_type == kDLCPU && manifest().has_kernels) {
    throw Failure(
        ADRENOC_UNSUPPORTED,
        "the bundle has OpenCL kernels and no code for the CPU: name an OpenCL device, or "
        "compile an int8 model with --fallback cpu");
  }
  device_ = chosen.device;
  device_name_ = chosen.name;
  tvm::runtime::DeviceAPI::Get(device_)->SetDevice(device_);
  if (bundle_->editions().empty() || device_.device_type != kDLOpenCL) {
    load_edition(options);
  } else {
    load_best_edition(options);
  }
}

void Model::load_edition(const LoadOptions& options) {
  load_programs();
  const Stopwatch building;
  std::future<opencl::BuildReport> build;
  if (device_.device_type == kDLOpenCL) build = start_build(options);
  upload_constants();
  if (build.valid()) {
    finish_build(std::move(build));
    // Regions of CLML, while nobody waits for a run; each that cannot run has its own kernels.
    clml::set_cache_folder(options.cache_folder);
    for (const Program& program : programs_) {
      (void)clml::prepare_regions(program.module(), device_.device_id);
    }
  }
  times_.build_ms = building.ms();
}

void Model::load_programs() {
  const Stopwatch watch;
  for (const Bucket& bucket : buckets()) {
    programs_.emplace_back(bucket.library_path, device_, recording());
  }
  times_.open_ms = bundle_->opened_ms() + watch.ms();
}

std::future<opencl::BuildReport> Model::start_build(const LoadOptions& options) const {
  opencl::ProgramSources sources;
  sources.folder = options.cache_folder;
  sources.embedded = [this](const std::string& name) { return bundle_->programs(name); };
  sources.rule = options.qualcomm_programs ? DriverRule::kQualcomm : DriverRule::kSame;
  return std::async(
      std::launch::async, [this, sources, cancelling = opencl::CancellingScope::current()] {
        const opencl::CancellingScope scope(cancelling);
        opencl::BuildReport all;
        for (const Program& program : programs_) {
          add_report(opencl::build_programs(program.module(), device_.device_id, sources), &all);
        }
        return all;
      });
}

void Model::finish_build(std::future<opencl::BuildReport> build) {
  const opencl::BuildReport report = build.get();
  opencl::end_if_cancelled();
  times_.cache_hits = report.hits;
  times_.cache_misses = report.misses;
  times_.cache_damaged = report.damaged;
  unsaved_programs_ = report.unsaved;
  built_ins_ = report.built_ins;
}

void Model::load_best_edition(const LoadOptions& options) {
  const opencl::DeviceInfo& info = opencl::device_at(device_.device_id).info();
  RankedEditions ranked = rank_editions(bundle_->editions(), adreno_number(info), info.driver);
  const Edition common = ranked.editions.back();
  for (const Edition& edition : ranked.editions) {
    bundle_->open_edition(edition);
    edition_ = edition.folder;
    edition_note_ = "kernels for " + edition.title() + " run: " + ranked.reason;
    std::string refused;
    try {
      load_edition(options);
      return;
    } catch (const Failure& failure) {
      if (edition.folder == common.folder || failure.status() != ADRENOC_DEVICE_FAILED) throw;
      refused = failure.what();
    } catch (const tvm::ffi::Error& error) {
      if (edition.folder == common.folder || opencl::is_cancelled(error)) throw;
      refused = error.message();
    }
    ranked.reason += ", and could not run those for " + edition.title() + ": " + refused;
    // Before the files that their code lies in.
    inputs_.clear();
    programs_.clear();
  }
}

void Model::load_on_cpu(const std::string& reason) {
  inputs_.clear();
  programs_.clear();
  opencl::release_all_pools();
  device_ = DLDevice{kDLCPU, 0};
  device_name_ = "CPU";
  cpu_reason_ = reason;
  cpu_ = std::make_unique<CpuModel>(bundle_->fallback_path(), manifest(), bundle_->params());
  times_ = {};
}

void Model::run_on_cpu() {
  check_bound();
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (const Bound& input : bound_inputs_) inputs.push_back(input.host);
  for (const Bound& output : bound_outputs_) outputs.push_back(output.host);
  const Stopwatch computing;
  if (!cpu_->compute(inputs, outputs, cancelling())) refuse_cancelled();
  times_.compute_ms = computing.ms();
  if (times_.runs == 0) times_.first_compute_ms = times_.compute_ms;
  ++times_.runs;
}

void Model::upload_constants() {
  const Stopwatch watch;
  // Of the file, which tells it before anything is moved.
  uint64_t bytes = 0;
  for (const auto& [name, param] : bundle_->params()) bytes += param.data.size();
  if (device_.device_type == kDLOpenCL) Residency::global().make_room(this, bytes);
  move_to_device();
  times_.constants_ms = watch.ms();
}

void Model::move_to_device() {
  Constants constants(*bundle_, device_);
  // States are one memory, and so is what programs read alike, but for what a decoder's loop
  // writes.
  std::map<std::pair<std::string, std::vector<int64_t>>, Tensor> shared;
  for (size_t i = 0; i < programs_.size(); ++i) {
    const Manifest& manifest = buckets()[i].manifest;
    Tensors inputs;
    for (const TensorSpec& spec : manifest.inputs) {
      const bool is_state = manifest.is_state(spec.name);
      const auto key = std::make_pair(spec.name, is_state ? std::vector<int64_t>() : spec.shape);
      const auto held = shared.find(key);
      inputs.push_back(held != shared.end()
                           ? held->second
                           : empty_tensor(spec.shape, spec.dtype, device_, "global"));
      if (!Session::writes(spec.name)) shared.emplace(key, inputs.back());
    }
    inputs_.push_back(std::move(inputs));
    programs_[i].take_constants(manifest, &constants);
  }
  synchronize();
}

void Model::leave_device() {
  session_.reset();
  for (Program& program : programs_) program.drop_constants();
  inputs_.clear();
}

uint64_t Model::resident_bytes() const {
  std::set<const void*> seen;
  uint64_t bytes = 0;
  const auto add = [&](const Tensors& tensors) {
    for (const Tensor& tensor : tensors) {
      const auto* held = static_cast<const opencl::Descriptor*>(tensor->data);
      if (held != nullptr && seen.insert(held).second) bytes += held->spec().bytes;
    }
  };
  for (const Program& program : programs_) add(program.constants());
  for (const Tensors& inputs : inputs_) add(inputs);
  return bytes;
}

bool Model::give_up(Part part, bool owes) {
  // First the wish, then the look whether it is at work: what ends meanwhile sees the wish.
  const int wish = static_cast<int>(part) + 1;
  int before = owed_;
  while (owes && before < wish && !owed_.compare_exchange_weak(before, wish)) {
  }
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  return give_up_locked(static_cast<Part>(std::max(wish, owed_.exchange(0)) - 1));
}

bool Model::give_up_locked(Part part) {
  if (!has_constants_) return false;
  try {
    if (part == Part::kBetween) {
      forget_launches();
      return true;
    }
    if (!bundle_->keeps_constants()) {
      forget_launches();
      return false;
    }
    // The context comes along, as text in memory of the host.
    if (session_ != nullptr) {
      kept_context_ = session_->save();
    } else {
      save_states();
    }
    leave_device();
  } catch (const std::exception&) {
    return false;  // a device that failed; who runs the model is told
  }
  has_constants_ = false;
  ++evictions_;
  Residency::global().note_eviction();
  return true;
}

void Model::pay_what_is_owed() noexcept {
  if (owed_ == 0) return;
  try {
    // Where another call has begun, that one's end pays.
    if (give_up(Part::kBetween, false)) opencl::release_all_pools();
  } catch (const std::exception&) {
    // Nothing is given up; the next call finds the device as it is.
  }
}

void Model::return_to_device() {
  if (has_constants_) return;
  const Stopwatch watch;
  Residency& residency = Residency::global();
  residency.make_room(this, resident_bytes_);
  const auto move = [this] {
    try {
      move_to_device();
    } catch (...) {
      leave_device();
      throw;
    }
  };
  try {
    move();
  } catch (const tvm::ffi::Error& error) {
    if (error.kind() != "MemoryError") throw;
    residency.empty_for(this);
    move();
  }
  restore_states();
  has_constants_ = true;
  return_ms_ = watch.ms();
  residency.note_return(return_ms_);
}

void Model::settle() noexcept {
  if (device_.device_type != kDLOpenCL || cpu_ != nullptr) return;
  try {
    Residency::global().make_room(this, 0);
  } catch (const std::exception&) {
    // Others keep what they have.
  }
}

std::string Model::memory_note() const {
  const uint64_t budget = Residency::global().budget();
  std::string note;
  if (evictions_ != 0) {
    note = "its constants (" + shown_mib(resident_bytes_) + ") were taken from the device " +
           std::to_string(evictions_) + " times to make room";
    if (return_ms_ != 0) {
      note += "; to bring them back took " + number_text("%.2f ms", return_ms_) + " the last time";
    }
  }
  if (budget != 0 && !bundle_->keeps_constants()) {
    note +=
        std::string(note.empty() ? "" : "\n") +
        "its constants stay on the device whatever the memory budget: it was loaded from memory "
        "that the app may have released";
  }
  if (budget != 0 && resident_bytes_ > budget) {
    note += std::string(note.empty() ? "" : "\n") + "the memory budget of " + shown_mib(budget) +
            " is less than the " + shown_mib(resident_bytes_) + " of this model alone";
  }
  return note;
}

bool Model::is_state(size_t index) const {
  return chosen_manifest().is_state(chosen_manifest().inputs[index].name);
}

std::map<std::string, Model::Tensor> Model::states() const {
  std::map<std::string, Tensor> found;
  for (size_t bucket = 0; bucket < inputs_.size(); ++bucket) {
    const Manifest& manifest = buckets()[bucket].manifest;
    for (size_t i = 0; i < manifest.inputs.size(); ++i) {
      const std::string& name = manifest.inputs[i].name;
      if (manifest.is_state(name) && manifest.inputs[i].bytes != 0)
        found.emplace(name, inputs_[bucket][i]);
    }
  }
  return found;
}

void Model::begin_states() {
  if (has_states_) return;
  for (auto& [name, state] : states()) {
    const std::vector<char> zeros(tvm::ffi::GetDataSize(state));
    state.CopyFromBytes(zeros.data(), zeros.size());
  }
  has_states_ = true;
}

void Model::save_states() {
  kept_states_.clear();
  if (!has_states_) return;
  for (const auto& [name, state] : states()) {
    std::vector<char>& kept = kept_states_[name];
    kept.resize(tvm::ffi::GetDataSize(state));
    state.CopyToBytes(kept.data(), kept.size());
  }
}

void Model::restore_states() {
  const std::map<std::string, Tensor> held = states();
  for (const auto& [name, kept] : kept_states_) {
    Tensor state = held.at(name);
    state.CopyFromBytes(kept.data(), kept.size());
  }
  kept_states_.clear();
}

}  // namespace adrenoc_runtime
