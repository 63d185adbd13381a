// A decoder makes tokens and text; its context is cut, saved and brought back.
#include <utility>

#include "c_api/call.h"
#include "text/tokenizer.h"

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

using namespace adrenoc_runtime;

namespace {

// Gives elements to an app that has `room` for so many, unless it only asks how many there are.
template <typename Element>
void give(const Element* elements, size_t held, const char* what, Element* memory, size_t room,
          size_t* count) {
  require(count, "the count");
  *count = held;
  if (memory == nullptr) return;
  if (room < held) {
    refuse_argument({"there are ", held, " ", what, ", and there is room for ", room});
  }
  std::copy_n(elements, held, memory);
}

void answer(Model& model, std::vector<int64_t> prompt, const adrenoc_generation* how,
            adrenoc_on_text on_text, void* user) {
  if (on_text == nullptr) refuse_argument("on_text is a null pointer");
  if (prompt.empty()) refuse_argument("the text makes no tokens");
  std::vector<std::string> stops;
  const auto plain = read_plain(how, "generation");
  if (plain.stop_count != 0) require(plain.stop_texts, "stop_texts");
  for (size_t i = 0; i < plain.stop_count; ++i) {
    stops.push_back(text_or_empty(plain.stop_texts[i]));
    if (stops.back().empty()) refuse_argument("a text that stops is empty");
  }
  model.answer({std::move(prompt), read_generation(how), std::move(stops)},
               [&](const std::string& piece) { return on_text(piece.c_str(), user) == 0; });
}

}  // namespace

adrenoc_status adrenoc_generate(adrenoc_model* model, const int64_t* prompt, size_t count,
                                const adrenoc_generation* how, adrenoc_on_token on_token,
                                void* user) {
  return with_model(model, [&](auto& own) {
    if (count != 0) require(prompt, "prompt");
    if (on_token == nullptr) refuse_argument("on_token is a null pointer");
    const std::vector<int64_t> tokens(prompt, prompt + count);
    own.generate(tokens, read_generation(how),
                 [&](int64_t token) { return on_token(token, user) == 0; });
  });
}

adrenoc_status adrenoc_logits(adrenoc_model* model, uint64_t past, const int64_t* tokens,
                              size_t count, void* logits, size_t bytes,
                              const adrenoc_run_options* options) {
  return with_model(model, [&](auto& own) {
    if (count != 0) require(tokens, "tokens");
    require(logits, "logits");
    own.give_logits(past, std::vector<int64_t>(tokens, tokens + count), logits, bytes,
                    read_ending(options));
  });
}

adrenoc_status adrenoc_stop(adrenoc_model* model) {
  return with_model(model, [&](auto& own) { own.stop_generating(); });
}

adrenoc_status adrenoc_rewind(adrenoc_model* model, uint64_t tokens) {
  return with_model(model, [&](auto& own) {
    own.with_session([&](Session& session) { session.rewind(tokens); });
  });
}

adrenoc_status adrenoc_context(adrenoc_model* model, uint64_t* tokens, uint64_t* rows) {
  return with_model(model, [&](auto& own) {
    own.with_session([&](const Session& session) {
      if (tokens != nullptr) *tokens = session.tokens();
      if (rows != nullptr) *rows = session.rows();
    });
  });
}

adrenoc_status adrenoc_save_context(adrenoc_model* model, void* data, size_t bytes,
                                    size_t* needed) {
  return with_model(model, [&](auto& own) {
    require(needed, "needed");
    if (data == nullptr) {
      *needed = own.with_session([](const Session& session) { return session.saved_bytes(); });
      return;
    }
    const std::string saved = own.with_session([](Session& session) { return session.save(); });
    *needed = saved.size();
    if (bytes < saved.size()) {
      refuse_argument({"the context takes ", saved.size(), " bytes, there is room for ", bytes});
    }
    std::memcpy(data, saved.data(), saved.size());
  });
}

adrenoc_status adrenoc_restore_context(adrenoc_model* model, const void* data, size_t bytes) {
  return with_model(model, [&](auto& own) {
    require(data, "data");
    const std::string saved(static_cast<const char*>(data), bytes);
    own.with_session([&](Session& session) { session.restore(saved); });
  });
}

adrenoc_status adrenoc_usual_generation(adrenoc_model* model, adrenoc_generation* how) {
  return with_model(model, [&](auto& own) {
    require(how, "how");
    const Json& said = own.tokenizer().sampling();
    const auto number = [&](const char* name) {
      return static_cast<float>(said.at(name).number());
    };
    how->temperature = number("temperature");
    how->top_k = static_cast<uint32_t>(said.at("top_k").count());
    how->top_p = number("top_p");
    how->min_p = number("min_p");
    how->repetition_penalty = number("repetition_penalty");
    how->presence_penalty = number("presence_penalty");
    how->frequency_penalty = number("frequency_penalty");
  });
}

adrenoc_status adrenoc_encode(adrenoc_model* model, const char* text, size_t bytes,
                              int with_special, int64_t* tokens, size_t room, size_t* count) {
  return with_model(model, [&](auto& own) {
    if (bytes != 0) require(text, "text");
    const std::vector<int64_t> made = own.tokenizer().encode({text, bytes}, with_special != 0);
    give(made.data(), made.size(), "tokens", tokens, room, count);
  });
}

adrenoc_status adrenoc_decode(adrenoc_model* model, const int64_t* tokens, size_t count, char* text,
                              size_t room, size_t* bytes) {
  return with_model(model, [&](auto& own) {
    if (count != 0) require(tokens, "tokens");
    const std::string made = own.tokenizer().decode(tokens, tokens + count);
    give(made.data(), made.size(), "bytes", text, room, bytes);
  });
}

adrenoc_status adrenoc_answer(adrenoc_model* model, const adrenoc_message* messages, size_t count,
                              const adrenoc_generation* how, adrenoc_on_text on_text, void* user) {
  return with_model(model, [&](auto& own) {
    if (count != 0) require(messages, "messages");
    std::vector<Message> said;
    for (size_t i = 0; i < count; ++i) {
      said.push_back({text_or_empty(messages[i].role), text_or_empty(messages[i].content)});
    }
    const auto& tokenizer = own.tokenizer();
    const std::string text = render_turns(tokenizer.turns(), said);
    answer(own, tokenizer.encode(text, false), how, on_text, user);
  });
}

adrenoc_status adrenoc_continue(adrenoc_model* model, const char* text,
                                const adrenoc_generation* how, adrenoc_on_text on_text,
                                void* user) {
  return with_model(model, [&](auto& own) {
    require(text, "text");
    answer(own, own.tokenizer().encode(text, true), how, on_text, user);
  });
}
