// Which of a bundle's kernels a device gets, where it holds those of several GPUs.

#include "base/stopwatch.h"
#include "model/choose_device.h"
#include "model/model.h"

namespace adrenoc_runtime {

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
