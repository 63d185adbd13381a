// Does the device compute what the bundle's proof says?  Verdicts are kept by device and driver.
#include "base/stopwatch.h"
#include "model/model.h"

namespace adrenoc_runtime {
namespace {

// The first run goes through the virtual machine, the second keeps arguments, later ones try what
// the driver records: each way has to give the same bits.
constexpr uint32_t kMostRuns = 7;
constexpr uint32_t kLeastRuns = 3;
constexpr double kEnoughMs = 250;
// So often a proof may end without a verdict, as when somebody closes the app.
constexpr int kMostBegun = 2;

using Bytes = std::vector<std::vector<char>>;

}  // namespace

VerdictStore Model::verdicts() const {
  if (device_.device_type != kDLOpenCL) {
    return {cache_folder_, {device_name_, "", bundle_->digest()}};
  }
  const opencl::DeviceInfo& info = opencl::device_at(device_.device_id).info();
  const std::string launching =
      (no_record_ ? "\nno record" : "") + (edition_.empty() ? "" : "\n" + edition_);
  return {cache_folder_, {info.key() + launching, info.driver, bundle_->digest()}};
}

std::string Model::shown_device() const {
  if (device_.device_type != kDLOpenCL) return "the CPU";
  const opencl::DeviceInfo& info = opencl::device_at(device_.device_id).info();
  return info.name + " (driver " + info.driver + ")";
}

Model::Verdict Model::prove() {
  if (bundle_->proof().empty()) {
    throw Failure(ADRENOC_UNSUPPORTED,
                  "the bundle carries no proof: adrenoc prove BUNDLE MODEL puts one into it");
  }
  const Stopwatch watch;
  const VerdictStore store = verdicts();
  Verdict verdict;
  if (std::optional<std::string> kept = store.find()) {
    verdict.wrong = std::move(*kept);
    verdict.was_kept = true;
    verdict.ms = watch.ms();
    return verdict;
  }
  const std::vector<Trial> trials = read_proof(bundle_->proof(), buckets());
  if (store.begin() >= kMostBegun) {
    throw Failure(ADRENOC_DEVICE_FAILED,
                  {"on ", shown_device(), " the proof has begun ", kMostBegun,
                   " times and never ended: the driver hung, or ended the process"});
  }
  try {
    const Aside own(this);
    for (const Trial& trial : trials) {
      verdict.wrong = prove_bucket(trial, &verdict.runs);
      if (!verdict.wrong.empty()) break;
    }
    has_states_ = false;  // those of the trials are nobody's
  } catch (...) {
    has_states_ = false;
    store.forget();
    throw;
  }
  if (!verdict.wrong.empty()) verdict.wrong = "on " + shown_device() + " " + verdict.wrong;
  store.keep(verdict.wrong);
  verdict.ms = watch.ms();
  return verdict;
}

std::string Model::prove_bucket(const Trial& trial, uint32_t* runs) {
  choose(whole_bucket(buckets(), trial.bucket));
  Bytes own;
  Bytes other;
  for (size_t i = 0; i < trial.inputs.size(); ++i) {
    own.push_back(draw(trial.inputs[i], chosen_.inputs[i], 0));
    // What an earlier run left is not to pass for this run's.
    other.push_back(draw(trial.inputs[i], chosen_.inputs[i], 1));
  }
  Bytes seen;
  for (const TensorSpec& spec : chosen_.outputs) {
    seen.emplace_back(spec.bytes);
    seen.back().reserve(1);  // null is not bound
  }
  const auto compute = [&](Bytes& inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) bound_inputs_[i] = {inputs[i].data(), std::nullopt};
    for (size_t i = 0; i < seen.size(); ++i) bound_outputs_[i] = {seen[i].data(), std::nullopt};
    run_once();
    ++*runs;
  };
  compute(own);
  for (const ProvenOutput& output : trial.outputs) {
    const std::string wrong = find_wrong(output, chosen_.outputs[output.index], seen[output.index]);
    if (!wrong.empty()) return output.part + " is wrong: " + wrong;
  }
  const Bytes first = seen;
  const Stopwatch repeating;
  for (uint32_t run = 1; run < kMostRuns; ++run) {
    compute(run % 2 == 1 ? other : own);
    if (run % 2 == 1) continue;
    for (const ProvenOutput& output : trial.outputs) {
      const std::string unsteady =
          find_unsteady(chosen_.outputs[output.index], first[output.index], seen[output.index]);
      if (!unsteady.empty()) return output.part + " changes from run to run: " + unsteady;
    }
    if (run + 1 >= kLeastRuns && repeating.ms() > kEnoughMs) break;
  }
  return "";
}

}  // namespace adrenoc_runtime
