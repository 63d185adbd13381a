// A decoder on a device with its context: tokens that it has taken in and made.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/runtime/tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "bundle/manifest.h"
#include "generate/decoder_states.h"
#include "generate/token_loop.h"
#include "model/program.h"

namespace adrenoc_runtime {

struct Generation {
  uint32_t most = 0;                         // tokens; 0 for as many as there is room for
  std::optional<std::vector<int64_t>> ends;  // nothing: those of the bundle
  opencl::Sampling sampling;
};

// Names of a decoder's inputs and outputs (adrenoc/bundle/chat.py).
constexpr const char* kTokens = "input_ids";
constexpr const char* kPast = "past_length";
constexpr const char* kPicked = "next_token";
constexpr const char* kLogits = "logits";

inline size_t place_in_decoder(const std::vector<TensorSpec>& specs, const std::string& name) {
  const auto place = place_of(specs, name);
  if (place.has_value()) return *place;
  throw Failure(ADRENOC_UNSUPPORTED,
                {"the model is no decoder with caches: it has no `", name, "`"});
}

// How many tokens the caches have room for: one behind the most that there may be before it.
inline int64_t rows_of_caches(const Manifest& manifest) {
  const TensorSpec& past = manifest.inputs[place_in_decoder(manifest.inputs, kPast)];
  const std::vector<int64_t>& ids =
      manifest.inputs[place_in_decoder(manifest.inputs, kTokens)].shape;
  if (past.bounds.size() == 2) return past.bounds[1] + (ids.empty() ? 1 : ids.back());
  for (const std::string& state : manifest.states) {
    const std::vector<int64_t>& shape = manifest.inputs[*place_of(manifest.inputs, state)].shape;
    if (shape.size() == 4) return shape[2];
  }
  throw Failure(ADRENOC_UNSUPPORTED, "the model is no decoder with caches: it has no states");
}

class Session {
 public:
  // Whether to go on.
  using OnToken = std::function<bool(int64_t token)>;

  // `inputs` are those of each program, the states one memory.  Throws Failure (unsupported) for a
  // model that is no decoder.
  Session(const std::vector<Bucket>& buckets, const std::vector<Program>& programs,
          const std::vector<std::vector<tvm::runtime::Tensor>>& inputs, DLDevice device,
          opencl::Recording recording)
      : ends_(buckets.front().manifest.end_tokens),
        suppressed_(buckets.front().manifest.suppress_tokens),
        suppressed_first_(buckets.front().manifest.begin_suppress_tokens) {
    if (device.device_type != kDLOpenCL) {
      throw Failure(ADRENOC_UNSUPPORTED, "the model computes on the CPU, where no tokens are made");
    }
    const int64_t rows = rows_of_caches(buckets.front().manifest);
    loop_ = std::make_unique<opencl::TokenLoop>(device.device_id, recording, rows);
    for (size_t i = 0; i < programs.size(); ++i) {
      add_entry(buckets[i].manifest, programs[i], inputs[i]);
    }
    loop_->clear();
  }

  // Whether an input of that name is its own to write, for each program: tokens, and how many came
  // before.
  [[nodiscard]] static bool writes(const std::string& name) {
    return name == kTokens || name == kPast;
  }
  // Throws Failure (context full) where that ends it; all tokens were told then.
  void generate(const std::vector<int64_t>& prompt, const Generation& how,
                const OnToken& on_token) {
    try {
      opencl::check_sampling(how.sampling, vocabulary_);
    } catch (const tvm::ffi::Error& error) {
      refuse_argument(error.message());
    }
    const int64_t last = take_in(prompt);
    loop_->start(
        last, {how.most, how.ends.value_or(ends_), how.sampling, suppressed_, suppressed_first_});
    while (const auto token = loop_->next()) {
      if (most_token_ != 0 && *token > most_token_) {
        loop_->stop();
        throw Failure(ADRENOC_WRONG_RESULTS,
                      {"no logit is a number (NaN) after ", loop_->length(),
                       " tokens, so that no token can be picked: adrenoc check-accuracy MODEL "
                       "names the layer that is beyond half"});
      }
      if (!on_token(*token)) loop_->stop();
    }
    if (loop_->ended() == "full") {
      throw Failure(ADRENOC_CONTEXT_FULL, opencl::context_full(loop_->length(), loop_->rows(), 1));
    }
  }
  // Writes what the next token is picked of, after the first `past` tokens and these, and keeps no
  // more. Throws Failure (bad argument) where there are fewer than `past`, or `bytes` are not the
  // logits'.
  void give_logits(uint64_t past, const std::vector<int64_t>& prompt, void* logits, size_t bytes) {
    if (past > tokens()) {
      refuse_argument(
          {"the tokens come after ", past, " others, of which the context holds ", tokens()});
    }
    if (bytes != logits_bytes_) {
      refuse_argument({"`logits` has ", logits_bytes_, " bytes, got ", bytes});
    }
    rewind(past);
    opencl::GenerateWish wish;
    wish.most = 1;
    wish.with_logits = true;
    loop_->start(take_in(prompt), wish);
    (void)loop_->next();
    std::copy(loop_->logits().begin(), loop_->logits().end(), static_cast<char*>(logits));
    loop_->rewind(loop_->length());  // without the token that was picked
  }
  // Tokens of prompts, and made; forgets all but the first so many.
  [[nodiscard]] uint64_t tokens() const {
    // The last token that was made may have found no room.
    const int64_t made = loop_->length() + (loop_->pending().has_value() ? 1 : 0);
    return static_cast<uint64_t>(std::min(made, loop_->rows()));
  }
  void rewind(uint64_t count) {
    if (count == tokens()) return;
    if (count > tokens()) {
      refuse_argument(
          {"rewind to ", count, " tokens, expected 0 to the ", tokens(), " that are there"});
    }
    loop_->rewind(static_cast<int64_t>(count));
  }
  // How many tokens a prompt and the caches begin with, but for its last: that is taken in by the
  // step which makes the next.
  [[nodiscard]] uint64_t shared(const std::vector<int64_t>& prompt) const {
    const std::vector<int64_t>& taken = loop_->taken();
    const auto end =
        prompt.begin() + static_cast<ptrdiff_t>(std::max<size_t>(prompt.size(), 1) - 1);
    const auto differ = std::mismatch(prompt.begin(), prompt.empty() ? prompt.end() : end,
                                      taken.begin(), taken.end());
    return static_cast<uint64_t>(differ.first - prompt.begin());
  }
  // After one of these no more are made, where nobody says otherwise.
  [[nodiscard]] const std::vector<int64_t>& ends() const { return ends_; }
  [[nodiscard]] uint64_t rows() const { return static_cast<uint64_t>(loop_->rows()); }
  [[nodiscard]] size_t saved_bytes() const { return loop_->saved_bytes(); }
  [[nodiscard]] std::string save() { return loop_->save(); }
  // Throws Failure (bad argument) for what no session of this model saved.
  void restore(const std::string& saved) {
    try {
      loop_->restore(saved);
    } catch (const tvm::ffi::Error& error) {
      if (error.kind() != "ValueError") throw;
      refuse_argument(error.message());
    }
  }
  void forget() { loop_->forget(); }

 private:
  void add_entry(const Manifest& manifest, const Program& program,
                 const std::vector<tvm::runtime::Tensor>& inputs) {
    opencl::LoopEntry entry;
    entry.ids = place_in_decoder(manifest.inputs, kTokens);
    entry.past = place_in_decoder(manifest.inputs, kPast);
    const TensorSpec& ids = manifest.inputs[entry.ids];
    entry.tokens = ids.shape.empty() ? 1 : ids.shape.back();
    if (ids.bounds.size() == 2) most_token_ = ids.bounds[1];
    for (const std::string& state : manifest.states) {
      entry.states.push_back(*place_of(manifest.inputs, state));
    }
    entry.slack = manifest.slack;
    for (const std::string& state : manifest.recurrent) {
      entry.recurrent.push_back(*place_of(manifest.inputs, state));
    }
    if (entry.tokens == 1) {
      entry.picked = place_in_decoder(manifest.outputs, kPicked);
      entry.logits = place_in_decoder(manifest.outputs, kLogits);
      const std::vector<int64_t>& logits = manifest.outputs[entry.logits].shape;
      vocabulary_ = entry.vocabulary = logits.empty() ? 1 : logits.back();
      logits_bytes_ = manifest.outputs[entry.logits].bytes;
    } else if (const auto picked = place_of(manifest.outputs, kPicked)) {
      const std::vector<int64_t>& shape = manifest.outputs[*picked].shape;
      entry.picked = *picked;
      entry.picks = !shape.empty() && shape.back() == entry.tokens;
    }
    std::vector<tvm::ffi::AnyView> arguments(inputs.begin(), inputs.end());
    arguments.insert(arguments.end(), program.constants().begin(), program.constants().end());
    loop_->add_entry(entry, program.main(), arguments);
  }
  // Takes in all but the last token, which it gives.  Throws Failure where there is none, or no
  // room.
  [[nodiscard]] int64_t take_in(const std::vector<int64_t>& prompt) {
    std::vector<int64_t> tokens = prompt;
    if (const auto pending = loop_->pending()) tokens.insert(tokens.begin(), *pending);
    if (tokens.empty()) refuse_argument("there is no token to go on from: give a prompt");
    for (const int64_t token : prompt) {
      if (token >= 0 && (most_token_ == 0 || token <= most_token_)) continue;
      refuse_argument(
          {"the prompt has the token ", token, ", expected 0 to ",
           (most_token_ == 0 ? "the last of the vocabulary" : std::to_string(most_token_))});
    }
    const auto count = static_cast<int64_t>(tokens.size());
    if (count > loop_->rows() - loop_->length()) {
      throw Failure(ADRENOC_CONTEXT_FULL,
                    opencl::context_full(loop_->length(), loop_->rows(), count));
    }
    const int64_t last = tokens.back();
    tokens.pop_back();
    loop_->take_in(tokens);
    return last;
  }

  std::vector<int64_t> ends_;
  std::vector<int64_t> suppressed_;
  std::vector<int64_t> suppressed_first_;
  int64_t most_token_ = 0;  // what the model has rows for; 0 where that is not known
  int64_t vocabulary_ = 0;  // logits that a step gives
  uint64_t logits_bytes_ = 0;
  std::unique_ptr<opencl::TokenLoop> loop_;
};

}  // namespace adrenoc_runtime
