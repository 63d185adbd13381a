// What a model keeps on the device from run to run: zeros at first, then what the run before left.
#include <algorithm>

#include "base/failure.h"
#include "model/batch_copy.h"
#include "model/model.h"

namespace adrenoc_runtime {

bool Model::is_state(size_t index) const {
  const Manifest& manifest = chosen_manifest();
  const std::vector<std::string>& states = manifest.states;
  return std::find(states.begin(), states.end(), manifest.inputs[index].name) != states.end();
}

void Model::begin_states() {
  if (has_states_) return;
  for (size_t i = 0; i < chosen_.inputs.size(); ++i) {
    if (bound_inputs_[i].is_there() || !is_state(i)) continue;
    const TensorSpec& spec = chosen_manifest().inputs[i];
    const std::vector<char> zeros(spec.bytes);
    upload_filled(spec, zeros.data(), spec, &inputs_[chosen_.bucket][i], &scratch_);
  }
  has_states_ = true;
}

void Model::save_states() {
  kept_states_.clear();
  if (!has_states_) return;
  const Manifest& manifest = chosen_manifest();
  for (size_t i = 0; i < manifest.inputs.size(); ++i) {
    if (!is_state(i)) continue;
    std::vector<char>& kept = kept_states_[manifest.inputs[i].name];
    kept.resize(manifest.inputs[i].bytes);
    if (!kept.empty()) inputs_[chosen_.bucket][i].CopyToBytes(kept.data(), kept.size());
  }
}

void Model::restore_states() {
  const std::vector<TensorSpec>& inputs = chosen_manifest().inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto kept = kept_states_.find(inputs[i].name);
    if (kept == kept_states_.end()) continue;
    upload_filled(inputs[i], kept->second.data(), inputs[i], &inputs_[chosen_.bucket][i],
                  &scratch_);
  }
  kept_states_.clear();
}

}  // namespace adrenoc_runtime
