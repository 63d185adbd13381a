// Text into tokens and back, and conversations.
#include <utility>

#include "c_api/call.h"
#include "text/turns.h"

using adrenoc_runtime::Failure;
using adrenoc_runtime::guarded;
using adrenoc_runtime::Message;
using adrenoc_runtime::require;
using adrenoc_runtime::text_or_empty;

namespace {

// Gives elements to an app that has `room` for so many, unless it only asks how many there are.
template <typename Element>
void give(const Element* elements, size_t held, const char* what, Element* memory, size_t room,
          size_t* count) {
  require(count, "the count");
  *count = held;
  if (memory == nullptr) return;
  if (room < held) {
    throw Failure(ADRENOC_BAD_ARGUMENT, "there are " + std::to_string(held) + " " + what +
                                            ", and there is room for " + std::to_string(room));
  }
  std::copy_n(elements, held, memory);
}

void answer(adrenoc_model* model, std::vector<int64_t> prompt, const adrenoc_generation* how,
            adrenoc_on_text on_text, void* user) {
  if (on_text == nullptr) throw Failure(ADRENOC_BAD_ARGUMENT, "on_text is a null pointer");
  if (prompt.empty()) throw Failure(ADRENOC_BAD_ARGUMENT, "the text makes no tokens");
  std::vector<std::string> stops;
  const auto plain = adrenoc_runtime::read_plain(how, "generation");
  if (plain.stop_count != 0) require(plain.stop_texts, "stop_texts");
  for (size_t i = 0; i < plain.stop_count; ++i) {
    stops.push_back(text_or_empty(plain.stop_texts[i]));
    if (stops.back().empty()) throw Failure(ADRENOC_BAD_ARGUMENT, "a text that stops is empty");
  }
  model->model.answer({std::move(prompt), adrenoc_runtime::read_generation(how), std::move(stops)},
                      [&](const std::string& piece) { return on_text(piece.c_str(), user) == 0; });
}

}  // namespace

adrenoc_status adrenoc_usual_generation(adrenoc_model* model, adrenoc_generation* how) {
  return guarded([&] {
    require(model, "model");
    require(how, "how");
    const adrenoc_runtime::Json& said = model->model.tokenizer().sampling();
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
  return guarded([&] {
    require(model, "model");
    if (bytes != 0) require(text, "text");
    const std::vector<int64_t> made =
        model->model.tokenizer().encode({text, bytes}, with_special != 0);
    give(made.data(), made.size(), "tokens", tokens, room, count);
  });
}

adrenoc_status adrenoc_decode(adrenoc_model* model, const int64_t* tokens, size_t count, char* text,
                              size_t room, size_t* bytes) {
  return guarded([&] {
    require(model, "model");
    if (count != 0) require(tokens, "tokens");
    const std::string made = model->model.tokenizer().decode(tokens, tokens + count);
    give(made.data(), made.size(), "bytes", text, room, bytes);
  });
}

adrenoc_status adrenoc_answer(adrenoc_model* model, const adrenoc_message* messages, size_t count,
                              const adrenoc_generation* how, adrenoc_on_text on_text, void* user) {
  return guarded([&] {
    require(model, "model");
    if (count != 0) require(messages, "messages");
    std::vector<Message> said;
    for (size_t i = 0; i < count; ++i) {
      said.push_back({text_or_empty(messages[i].role), text_or_empty(messages[i].content)});
    }
    const auto& tokenizer = model->model.tokenizer();
    const std::string text = render_turns(tokenizer.turns(), said);
    answer(model, tokenizer.encode(text, false), how, on_text, user);
  });
}

adrenoc_status adrenoc_continue(adrenoc_model* model, const char* text,
                                const adrenoc_generation* how, adrenoc_on_text on_text,
                                void* user) {
  return guarded([&] {
    require(model, "model");
    require(text, "text");
    answer(model, model->model.tokenizer().encode(text, true), how, on_text, user);
  });
}
