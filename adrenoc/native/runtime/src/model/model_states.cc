// What a model keeps on the device from run to run: zeros at first, then what the run before left,
// of whichever bucket.
#include <algorithm>

#include "model/model.h"

namespace adrenoc_runtime {

bool Model::is_state(size_t index) const {
  const Manifest& manifest = chosen_manifest();
  const std::vector<std::string>& states = manifest.states;
  return std::find(states.begin(), states.end(), manifest.inputs[index].name) != states.end();
}

std::map<std::string, Model::Tensor> Model::states() const {
  std::map<std::string, Tensor> found;
  for (size_t bucket = 0; bucket < inputs_.size(); ++bucket) {
    const Manifest& manifest = buckets()[bucket].manifest;
    for (size_t i = 0; i < manifest.inputs.size(); ++i) {
      const std::string& name = manifest.inputs[i].name;
      const std::vector<std::string>& kept = manifest.states;
      const bool is_one = std::find(kept.begin(), kept.end(), name) != kept.end();
      if (is_one && manifest.inputs[i].bytes != 0) found.emplace(name, inputs_[bucket][i]);
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
