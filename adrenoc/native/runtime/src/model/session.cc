#include "model/session.h"

#include <tvm/ffi/error.h>

#include <algorithm>

#include "base/failure.h"
#include "generate/decoder_states.h"

namespace adrenoc_runtime {
namespace {

// Names of a decoder's inputs and outputs (adrenoc/bundle/chat.py).
constexpr const char* kTokens = "input_ids";
constexpr const char* kPast = "past_length";
constexpr const char* kPicked = "next_token";
constexpr const char* kLogits = "logits";

std::optional<size_t> place_of(const std::vector<TensorSpec>& specs, const std::string& name) {
  const auto found = std::find_if(specs.begin(), specs.end(),
                                  [&](const TensorSpec& spec) { return spec.name == name; });
  if (found == specs.end()) return std::nullopt;
  return static_cast<size_t>(found - specs.begin());
}

size_t place_in_decoder(const std::vector<TensorSpec>& specs, const std::string& name) {
  const auto place = place_of(specs, name);
  if (place.has_value()) return *place;
  throw Failure(ADRENOC_UNSUPPORTED, "the model is no decoder with caches: it has no `" + name +
                                         "`");
}

// How many tokens the caches have room for: one behind the most that there may be before it.
int64_t rows_of_caches(const Manifest& manifest) {
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

}  // namespace

Session::Session(const std::vector<Bucket>& buckets, const std::vector<Program>& programs,
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

bool Session::writes(const std::string& name) { return name == kTokens || name == kPast; }

void Session::add_entry(const Manifest& manifest, const Program& program,
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

uint64_t Session::tokens() const {
  // The last token that was made may have found no room.
  const int64_t made = loop_->length() + (loop_->pending().has_value() ? 1 : 0);
  return static_cast<uint64_t>(std::min(made, loop_->rows()));
}

int64_t Session::take_in(const std::vector<int64_t>& prompt) {
  std::vector<int64_t> tokens = prompt;
  if (const auto pending = loop_->pending()) tokens.insert(tokens.begin(), *pending);
  if (tokens.empty()) {
    throw Failure(ADRENOC_BAD_ARGUMENT, "there is no token to go on from: give a prompt");
  }
  for (const int64_t token : prompt) {
    if (token >= 0 && (most_token_ == 0 || token <= most_token_)) continue;
    throw Failure(ADRENOC_BAD_ARGUMENT,
                  "the prompt has the token " + std::to_string(token) + ", expected 0 to " +
                      (most_token_ == 0 ? "the last of the vocabulary"
                                        : std::to_string(most_token_)));
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

void Session::generate(const std::vector<int64_t>& prompt, const Generation& how,
                       const OnToken& on_token) {
  try {
    opencl::check_sampling(how.sampling, vocabulary_);
  } catch (const tvm::ffi::Error& error) {
    throw Failure(ADRENOC_BAD_ARGUMENT, error.message());
  }
  const int64_t last = take_in(prompt);
  loop_->start(last, {how.most, how.ends.value_or(ends_), how.sampling, suppressed_,
                      suppressed_first_});
  while (const auto token = loop_->next()) {
    if (most_token_ != 0 && *token > most_token_) {
      loop_->stop();
      throw Failure(ADRENOC_WRONG_RESULTS,
                    "no logit is a number (NaN) after " + std::to_string(loop_->length()) +
                        " tokens, so that no token can be picked: adrenoc check-accuracy MODEL "
                        "names the layer that is beyond half");
    }
    if (!on_token(*token)) loop_->stop();
  }
  if (loop_->ended() == "full") {
    throw Failure(ADRENOC_CONTEXT_FULL, opencl::context_full(loop_->length(), loop_->rows(), 1));
  }
}

void Session::give_logits(uint64_t past, const std::vector<int64_t>& prompt, void* logits,
                          size_t bytes) {
  if (past > tokens()) {
    throw Failure(ADRENOC_BAD_ARGUMENT, "the tokens come after " + std::to_string(past) +
                                            " others, of which the context holds " +
                                            std::to_string(tokens()));
  }
  if (bytes != logits_bytes_) {
    throw Failure(ADRENOC_BAD_ARGUMENT, "`logits` has " + std::to_string(logits_bytes_) +
                                            " bytes, got " + std::to_string(bytes));
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

uint64_t Session::shared(const std::vector<int64_t>& prompt) const {
  const std::vector<int64_t>& taken = loop_->taken();
  const auto end = prompt.begin() + static_cast<ptrdiff_t>(std::max<size_t>(prompt.size(), 1) - 1);
  const auto differ = std::mismatch(prompt.begin(), prompt.empty() ? prompt.end() : end,
                                    taken.begin(), taken.end());
  return static_cast<uint64_t>(differ.first - prompt.begin());
}

void Session::rewind(uint64_t count) {
  if (count == tokens()) return;
  if (count > tokens()) {
    throw Failure(ADRENOC_BAD_ARGUMENT, "rewind to " + std::to_string(count) +
                                            " tokens, expected 0 to the " +
                                            std::to_string(tokens()) + " that are there");
  }
  loop_->rewind(static_cast<int64_t>(count));
}

void Session::restore(const std::string& saved) {
  try {
    loop_->restore(saved);
  } catch (const tvm::ffi::Error& error) {
    if (error.kind() != "ValueError") throw;
    throw Failure(ADRENOC_BAD_ARGUMENT, error.message());
  }
}

}  // namespace adrenoc_runtime
