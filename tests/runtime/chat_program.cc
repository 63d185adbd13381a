// A decoder's text through the C++ wrapper: tokens and back, conversations, stops, refusals.
//
//   chat_program BUNDLE OPENCL ; prints an answer, and ends with 0 where all holds.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "adrenoc.hpp"

namespace {

using Messages = std::vector<adrenoc::Message>;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(1);
}

adrenoc::Generation few(uint32_t count) {
  adrenoc::Generation how;
  how.max_tokens = count;
  how.temperature = 1;
  how.seed = 7;
  return how;
}

std::string answer(adrenoc::Model& model, const Messages& messages,
                   const adrenoc::Generation& how) {
  std::string text;
  model.answer(messages, how, [&](const char* piece) {
    text += piece;
    return true;
  });
  return text;
}

adrenoc_status refused(adrenoc::Model& model, const Messages& messages, const char* reason) {
  try {
    answer(model, messages, few(1));
  } catch (const adrenoc::Error& error) {
    const bool is_said = std::string(error.what()).find(reason) != std::string::npos;
    if (!is_said) std::fprintf(stderr, "said: %s\n", error.what());
    expect(is_said, reason);
    return error.status();
  }
  return ADRENOC_OK;
}

void check_tokens(adrenoc::Model& model) {
  const std::string text = "Caf\xC3\xA9 \xE4\xBD\xA0, don't <|im_start|>\n 42";
  const std::vector<int64_t> tokens = model.encode(text);
  expect(tokens.size() > 3, "a text has tokens");
  expect(model.encode("").empty(), "no text has none");
  expect(model.decode(tokens) == "Caf\xC3\xA9 \xE4\xBD\xA0, don't \n 42",
         "a special token is no text");
  int64_t room[1];
  size_t count = 0;
  expect(adrenoc_encode(nullptr, "a", 1, 1, room, 1, &count) == ADRENOC_BAD_ARGUMENT, "no model");
  try {
    (void)model.encode("\xC3");
    expect(false, "half a letter is no text");
  } catch (const adrenoc::Error& error) {
    expect(error.status() == ADRENOC_BAD_ARGUMENT, "half a letter is a bad argument");
  }
}

void check_usual(adrenoc::Model& model) {
  const adrenoc::Generation usual = model.usual_generation();
  expect(usual.temperature == 0.7f && usual.top_p == 0.875f && usual.top_k == 0,
         "tokens are picked as the model's makers say");
  expect(usual.repetition_penalty == 1 && usual.presence_penalty == 0, "and not otherwise");
}

void check_refusals(adrenoc::Model& model) {
  expect(refused(model, {}, "the last message is not the user's") == ADRENOC_BAD_ARGUMENT, "none");
  expect(refused(model, {{"user", ""}}, "is empty") == ADRENOC_BAD_ARGUMENT, "empty");
  expect(refused(model, {{"assistant", "a"}}, "expected user") == ADRENOC_BAD_ARGUMENT, "first");
  expect(refused(model, {{"user", "a"}, {"tool", "b"}}, "the role tool, expected assistant") ==
             ADRENOC_BAD_ARGUMENT,
         "a tool");
  expect(refused(model, {{"user", "a"}, {"assistant", "b"}}, "nothing to answer") ==
             ADRENOC_BAD_ARGUMENT,
         "an answer last");
}

}  // namespace

int main(int, char** words) {
  adrenoc::Options options;
  options.opencl_library = words[2];
  adrenoc::Model model(words[1], options);
  check_tokens(model);
  check_usual(model);
  check_refusals(model);
  Messages messages = {{"system", "Be short."}, {"user", "Hello there"}};
  const std::string whole = answer(model, messages, few(12));
  const uint64_t held = model.context().tokens;
  expect(answer(model, messages, few(12)) == whole, "what is kept changes nothing");
  expect(model.context().tokens == held, "the context is the conversation again");

  // What was there before is not computed again, whatever it was.
  messages.push_back({"assistant", whole});
  messages.push_back({"user", "And more?"});
  const std::string second = answer(model, messages, few(12));
  model.rewind(0);
  expect(answer(model, messages, few(12)) == second, "a conversation from nothing is the same");

  adrenoc::Generation stopping = few(12);
  stopping.stop_texts = {"never", whole.substr(whole.size() / 2)};
  messages.resize(2);
  expect(answer(model, messages, stopping) == whole.substr(0, whole.find(stopping.stop_texts[1])),
         "a text that stops is no part of the answer");

  int pieces = 0;
  model.answer(messages, few(12), [&](const char*) { return ++pieces < 2; });
  expect(pieces == 2, "a listener ends it");
  std::string continued;
  model.continue_text("Once upon", few(5), [&](const char* piece) {
    continued += piece;
    return true;
  });
  model.rewind(0);
  std::vector<int64_t> made;
  model.generate(model.encode("Once upon"), few(5), [&](int64_t token) {
    made.push_back(token);
    return true;
  });
  expect(model.decode(made) == continued, "text that goes on is that of its tokens");
  try {
    answer(model, {{"user", std::string(4000, 'x')}}, few(1));
    expect(false, "a conversation may have no room");
  } catch (const adrenoc::Error& error) {
    expect(error.status() == ADRENOC_CONTEXT_FULL, "no room is a full context");
  }
  std::printf("%s", whole.c_str());
  return 0;
}
