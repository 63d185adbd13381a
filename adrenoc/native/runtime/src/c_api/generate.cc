// A decoder makes tokens; its context is cut, saved and brought back.

#include "c_api/call.h"

using adrenoc_runtime::Failure;
using adrenoc_runtime::guarded;
using adrenoc_runtime::require;

namespace adrenoc_runtime {

Generation read_generation(const adrenoc_generation* given) {
  const adrenoc_generation plain = read_plain(given, "generation");
  Generation how;
  how.most = plain.max_tokens;
  if (plain.end_tokens != nullptr) {
    how.ends.emplace(plain.end_tokens, plain.end_tokens + plain.end_count);
  }
  how.sampling.temperature = plain.temperature;
  how.sampling.top_k = plain.top_k;
  if (plain.top_p != 0) how.sampling.top_p = plain.top_p;
  how.sampling.min_p = plain.min_p;
  if (plain.repetition_penalty != 0) how.sampling.repetition_penalty = plain.repetition_penalty;
  how.sampling.presence_penalty = plain.presence_penalty;
  how.sampling.frequency_penalty = plain.frequency_penalty;
  if (plain.bias_count != 0) {
    require(plain.bias_tokens, "bias_tokens");
    require(plain.bias, "bias");
  }
  for (size_t i = 0; i < plain.bias_count; ++i) {
    how.sampling.bias.emplace_back(plain.bias_tokens[i], plain.bias[i]);
  }
  how.sampling.seed = plain.seed;
  return how;
}

}  // namespace adrenoc_runtime

adrenoc_status adrenoc_generate(adrenoc_model* model, const int64_t* prompt, size_t count,
                                const adrenoc_generation* how, adrenoc_on_token on_token,
                                void* user) {
  return guarded([&] {
    require(model, "model");
    if (count != 0) require(prompt, "prompt");
    if (on_token == nullptr) throw Failure(ADRENOC_BAD_ARGUMENT, "on_token is a null pointer");
    const std::vector<int64_t> tokens(prompt, prompt + count);
    model->model.generate(tokens, adrenoc_runtime::read_generation(how),
                          [&](int64_t token) { return on_token(token, user) == 0; });
  });
}

adrenoc_status adrenoc_logits(adrenoc_model* model, uint64_t past, const int64_t* tokens,
                              size_t count, void* logits, size_t bytes,
                              const adrenoc_run_options* options) {
  return guarded([&] {
    require(model, "model");
    if (count != 0) require(tokens, "tokens");
    require(logits, "logits");
    model->model.give_logits(past, std::vector<int64_t>(tokens, tokens + count), logits, bytes,
                             adrenoc_runtime::read_ending(options));
  });
}

adrenoc_status adrenoc_stop(adrenoc_model* model) {
  return guarded([&] {
    require(model, "model");
    model->model.stop_generating();
  });
}

adrenoc_status adrenoc_rewind(adrenoc_model* model, uint64_t tokens) {
  return guarded([&] {
    require(model, "model");
    model->model.rewind(tokens);
  });
}

adrenoc_status adrenoc_context(adrenoc_model* model, uint64_t* tokens, uint64_t* rows) {
  return guarded([&] {
    require(model, "model");
    const auto context = model->model.context();
    if (tokens != nullptr) *tokens = context.tokens;
    if (rows != nullptr) *rows = context.rows;
  });
}

adrenoc_status adrenoc_save_context(adrenoc_model* model, void* data, size_t bytes,
                                    size_t* needed) {
  return guarded([&] {
    require(model, "model");
    require(needed, "needed");
    if (data == nullptr) {
      *needed = model->model.saved_bytes();
      return;
    }
    const std::string saved = model->model.save_context();
    *needed = saved.size();
    if (bytes < saved.size()) {
      throw Failure(ADRENOC_BAD_ARGUMENT, "the context takes " + std::to_string(saved.size()) +
                                              " bytes, there is room for " + std::to_string(bytes));
    }
    std::memcpy(data, saved.data(), saved.size());
  });
}

adrenoc_status adrenoc_restore_context(adrenoc_model* model, const void* data, size_t bytes) {
  return guarded([&] {
    require(model, "model");
    require(data, "data");
    model->model.restore_context(std::string(static_cast<const char*>(data), bytes));
  });
}
