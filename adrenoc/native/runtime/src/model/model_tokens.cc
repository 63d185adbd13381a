// How a model makes tokens and text, where it is a decoder.
#include <algorithm>
#include <cstddef>

#include "model/model.h"
#include "opencl/external_memory.h"

namespace adrenoc_runtime {
namespace {

// What no token of a text reads (adrenoc/bundle/chat.py).
constexpr const char* kImageRows = "image_features";

}  // namespace

Session& Model::session() {
  if (cpu_ != nullptr) {
    throw Failure(ADRENOC_UNSUPPORTED, "the model computes on the CPU, where no tokens are made");
  }
  if (session_ == nullptr) {
    auto made = std::make_unique<Session>(buckets(), programs_, inputs_, device_, recording());
    if (!kept_context_.empty()) made->restore(kept_context_);
    session_ = std::move(made);
    kept_context_.clear();
  }
  return *session_;
}

bool Model::reads_beside_tokens() const {
  const std::vector<TensorSpec>& inputs = chosen_manifest().inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_own = is_state(i) || Session::writes(inputs[i].name);
    if (!is_own && inputs[i].name != kImageRows) return true;
  }
  return false;
}

void Model::give_to_session() {
  opencl::HandedOver memory(device_, bound_memory());
  for (size_t i = 0; i < bound_inputs_.size(); ++i) {
    const TensorSpec& spec = chosen_manifest().inputs[i];
    const Bound& bound = bound_inputs_[i];
    if (is_state(i) || Session::writes(spec.name)) continue;
    Tensor& held = inputs_[chosen_.bucket][i];
    if (bound.memory.has_value()) {
      held.CopyFrom(*bound.memory);
    } else if (bound.host != nullptr) {
      upload_filled(chosen_.inputs[i], bound.host, spec, &held, &scratch_);
    } else if (spec.name != kImageRows) {
      refuse_argument(
          {"input `", spec.name, "` is not bound, which the decoder reads beside tokens"});
    }
  }
  memory.give_back();
}

void Model::generate(const std::vector<int64_t>& prompt, const Generation& how,
                     const OnToken& on_token) {
  at_turn(cancels(), [&] { make_tokens(prompt, how, on_token); });
}

void Model::make_tokens(const std::vector<int64_t>& prompt, const Generation& how,
                        const OnToken& on_token) {
  stops_ = false;
  bool was_paused = false;
  bool was_cancelled = false;
  // Between the parts of a prompt and between tokens, so that the context holds whole ones.
  const opencl::Cancelling heeded = cancelling();
  const opencl::CancellingScope scope(&heeded);
  Session& decoder = session();
  give_to_session();
  decoder.generate(prompt, how, [&](int64_t token) {
    const bool is_wanted = on_token(token);
    was_cancelled = heeded.is_asked();
    const bool goes_on = is_wanted && !was_cancelled && !stops_.load();
    was_paused = goes_on && Pause::global().is_on();
    return goes_on && !was_paused;
  });
  if (was_cancelled) refuse_cancelled();
  if (was_paused) {
    throw Failure(ADRENOC_NOT_READY,
                  "models were paused while it made tokens: an empty prompt goes on");
  }
}

void Model::give_logits(uint64_t past, const std::vector<int64_t>& tokens, void* logits,
                        size_t bytes, const opencl::Ending& ending) {
  const auto work = [&] {
    const opencl::Cancelling heeded = cancelling();
    const opencl::CancellingScope scope(&heeded);
    Session& decoder = session();
    give_to_session();
    decoder.give_logits(past, tokens, logits, bytes);
  };
  at_turn(cancels(), work, ending);
}

const Tokenizer& Model::tokenizer() {
  std::call_once(has_tokenizer_, [&] {
    const std::string file = bundle_->take_text_tables();
    if (!file.empty()) tokenizer_ = std::make_unique<const Tokenizer>(file);
  });
  if (tokenizer_ == nullptr) {
    throw Failure(
        ADRENOC_UNSUPPORTED,
        "the bundle has no text_tables.bin, so that texts are no tokens here: no "
        "tokenizer.json lay beside the model, or its decisions.json says why (\"text on the "
        "device\")");
  }
  return *tokenizer_;
}

void Model::answer(const Answer& asked, const OnText& on_text) {
  TextStream stream(&tokenizer());
  Stops stops(asked.stops);
  at_turn(cancels(), [&] {
    Session& own = session();
    // What is bound beside tokens, such as an adapter, may be another than the context was made
    // with.
    const uint64_t kept = reads_beside_tokens() ? 0 : own.shared(asked.prompt);
    if (kept < own.tokens()) own.rewind(kept);
    const std::vector<int64_t>& ends = asked.how.ends.has_value() ? *asked.how.ends : own.ends();
    const auto give = [&](const std::string& piece) { return piece.empty() || on_text(piece); };
    bool is_wanted = true;
    const std::vector<int64_t> rest(asked.prompt.begin() + static_cast<ptrdiff_t>(kept),
                                    asked.prompt.end());
    const auto end = [&] {
      if (is_wanted && !stops.has_stopped()) (void)give(stops.finish(stream.finish()));
    };
    try {
      make_tokens(rest, asked.how, [&](int64_t token) {
        if (std::find(ends.begin(), ends.end(), token) != ends.end()) return true;
        is_wanted = give(stops.feed(stream.feed(token)));
        return is_wanted && !stops.has_stopped();
      });
    } catch (const Failure& failure) {
      if (failure.status() == ADRENOC_CONTEXT_FULL) end();
      throw;
    }
    end();
  });
}

}  // namespace adrenoc_runtime
