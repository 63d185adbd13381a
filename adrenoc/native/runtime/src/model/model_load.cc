// How a model comes to compute: on a device, by the kernels of its own GPU or the common ones, or
// where no OpenCL device computes, by the code for the CPU that its bundle carries.
#include <tvm/runtime/device_api.h>

#include "base/stopwatch.h"
#include "clml/backends.h"
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

}  // namespace adrenoc_runtime
