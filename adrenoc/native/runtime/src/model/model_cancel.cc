// A model whose runs another thread may end, with its states as they were.
#include <tvm/ffi/container/shape.h>

#include <algorithm>

#include "launch/pacing.h"
#include "model/model.h"

namespace adrenoc_runtime {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;

// What a decoder takes its number of tokens by (adrenoc/bundle/chat.py).
constexpr const char* kPastLength = "past_length";
constexpr size_t kCacheRank = 4;

// Copies on the device of what a run may leave half written.
class Copies {
 public:
  void take(const std::vector<Tensor>& originals) {
    for (const Tensor& original : originals) {
      Tensor copy = Tensor::Empty(ffi::Shape(original.Shape()), original.DataType(),
                                  original->device);
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
  const bool is_decoder = std::any_of(specs.begin(), specs.end(), [](const TensorSpec& spec) {
    return spec.name == kPastLength;
  });
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
