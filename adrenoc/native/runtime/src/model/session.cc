#include "model/session.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/failure.h"
#include "generate/decoder_states.h"
#include "model/model.h"
#include "model/program.h"
#include "opencl/external_memory.h"

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
  throw Failure(ADRENOC_UNSUPPORTED,
                {"the model is no decoder with caches: it has no `", name, "`"});
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

// What no token of a text reads (adrenoc/bundle/chat.py).
constexpr const char* kImageRows = "image_features";

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

void Session::generate(const std::vector<int64_t>& prompt, const Generation& how,
                       const OnToken& on_token) {
  try {
    opencl::check_sampling(how.sampling, vocabulary_);
  } catch (const tvm::ffi::Error& error) {
    refuse_argument(error.message());
  }
  const int64_t last = take_in(prompt);
  loop_->start(last,
               {how.most, how.ends.value_or(ends_), how.sampling, suppressed_, suppressed_first_});
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

void Session::give_logits(uint64_t past, const std::vector<int64_t>& prompt, void* logits,
                          size_t bytes) {
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
    refuse_argument(
        {"rewind to ", count, " tokens, expected 0 to the ", tokens(), " that are there"});
  }
  loop_->rewind(static_cast<int64_t>(count));
}

void Session::restore(const std::string& saved) {
  try {
    loop_->restore(saved);
  } catch (const tvm::ffi::Error& error) {
    if (error.kind() != "ValueError") throw;
    refuse_argument(error.message());
  }
}

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
