// A model where no OpenCL device computes: by the code for the CPU that its bundle carries.

#include "base/stopwatch.h"
#include "model/model.h"

namespace adrenoc_runtime {

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
