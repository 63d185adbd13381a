// A decoder's session through the C++ wrapper: streams, stops, goes back, saves and restores.
//
//   session_program BUNDLE OPENCL TOKEN... ; prints the tokens after them, until the context is full.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "adrenoc.hpp"

namespace {

using Tokens = std::vector<int64_t>;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(1);
}

Tokens generate(adrenoc::Model& model, const Tokens& prompt, adrenoc::Generation how = {}) {
  Tokens made;
  model.generate(prompt, how, [&](int64_t token) {
    made.push_back(token);
    return true;
  });
  return made;
}

template <typename Work>
adrenoc_status status_of(Work work) {
  try {
    work();
  } catch (const adrenoc::Error& error) {
    return error.status();
  }
  return ADRENOC_OK;
}

Tokens part(const Tokens& tokens, size_t from, size_t to) {
  return {tokens.begin() + static_cast<std::ptrdiff_t>(from),
          tokens.begin() + static_cast<std::ptrdiff_t>(to)};
}

// Tokens as they come, until there is no room.
Tokens fill(adrenoc::Model& model, const Tokens& prompt) {
  Tokens all;
  const adrenoc_status full = status_of([&] {
    model.generate(prompt, {}, [&](int64_t token) {
      all.push_back(token);
      return true;
    });
  });
  expect(full == ADRENOC_CONTEXT_FULL, "a full context is an error");
  const auto context = model.context();
  expect(context.tokens == context.rows, "a full context holds as many as it has room for");
  expect(status_of([&] { generate(model, {1}); }) == ADRENOC_CONTEXT_FULL, "it stays full");
  return all;
}

void go_back(adrenoc::Model& model, const Tokens& prompt, const Tokens& all) {
  const size_t held = prompt.size();
  adrenoc::Generation five;
  five.max_tokens = 5;
  model.rewind(held + 2);
  expect(generate(model, {all[2]}, five) == part(all, 3, 8), "what was rewound goes on the same");
  expect(generate(model, {}, five) == part(all, 8, 13), "an empty prompt goes on");
  const std::vector<char> saved = model.save_context();
  expect(generate(model, {}, five) == part(all, 13, 18), "and on");
  model.rewind(0);
  expect(status_of([&] { generate(model, {}, five); }) == ADRENOC_BAD_ARGUMENT, "no token");
  generate(model, {1, 1, 1}, five);
  model.restore_context(saved);
  expect(model.context().tokens == held + 13, "the saved context counts its tokens");
  expect(generate(model, {}, five) == part(all, 13, 18), "what was restored goes on the same");
  std::vector<char> wrong = saved;
  wrong.pop_back();
  const auto restored = status_of([&] { model.restore_context(wrong); });
  expect(restored == ADRENOC_BAD_ARGUMENT, "half a context is refused");
  expect(status_of([&] { model.rewind(1000000); }) == ADRENOC_BAD_ARGUMENT, "there are fewer");
}

void stop_and_end(adrenoc::Model& model, const Tokens& prompt, const Tokens& all) {
  model.rewind(0);
  Tokens made;
  model.generate(prompt, {}, [&](int64_t token) {
    made.push_back(token);
    return made.size() < 4;
  });
  expect(made == part(all, 0, 4), "the listener ends it");
  model.rewind(0);
  made.clear();
  model.generate(prompt, {}, [&](int64_t token) {
    made.push_back(token);
    if (made.size() == 3) std::thread([&] { model.stop(); }).join();
    return true;
  });
  expect(made == part(all, 0, 3), "another thread ends it");
  model.rewind(0);
  bool thrown = false;
  try {
    model.generate(prompt, {}, [](int64_t) -> bool { throw std::runtime_error("enough"); });
  } catch (const std::runtime_error& error) {
    thrown = std::string(error.what()) == "enough";
  }
  expect(thrown, "what the listener throws comes out");
  model.rewind(0);
  adrenoc::Generation until;
  until.has_own_ends = true;
  until.end_tokens = {all[6]};
  made = generate(model, prompt, until);
  expect(made.back() == all[6] && made.size() <= 7, "an end token ends it");
}

int64_t pick(adrenoc::Model& model, uint64_t past, const Tokens& tokens) {
  const std::vector<char> bytes = model.logits(past, tokens);
  std::vector<float> row(bytes.size() / sizeof(float));
  std::memcpy(row.data(), bytes.data(), bytes.size());
  return std::max_element(row.begin(), row.end()) - row.begin();
}

// Tokens that the program picks itself, and what comes after contexts that are cut.
void pick_by_logits(adrenoc::Model& model, const Tokens& prompt, const Tokens& all) {
  const size_t held = prompt.size();
  Tokens made{pick(model, 0, prompt)};
  for (size_t i = 0; i < 7; ++i) made.push_back(pick(model, held + i, {made.back()}));
  expect(made == part(all, 0, 8), "logits are of the tokens before them");
  expect(model.context().tokens == held + 7, "what is picked is not taken in");
  expect(pick(model, held + 2, part(all, 2, 5)) == all[5], "what lay behind is forgotten");
  adrenoc::Generation two;
  two.max_tokens = 2;
  expect(generate(model, {all[5]}, two) == part(all, 6, 8), "generate goes on");
  expect(pick(model, held + 8, {all[8]}) == all[9], "and so do logits, with the last token");
  expect(status_of([&] { pick(model, held + 11, {1}); }) == ADRENOC_BAD_ARGUMENT, "a gap");
  expect(status_of([&] { pick(model, 0, {}); }) == ADRENOC_BAD_ARGUMENT, "logits of no token");
  expect(pick(model, 0, prompt) == all[0], "past 0 begins anew");
  model.rewind(0);
  const Tokens many(static_cast<size_t>(model.context().rows) + 1, 1);
  expect(status_of([&] { pick(model, 0, many); }) == ADRENOC_CONTEXT_FULL, "no room");
}

void draw(adrenoc::Model& model, const Tokens& prompt) {
  adrenoc::Generation how;
  how.max_tokens = 12;
  how.temperature = 2;
  how.top_k = 40;
  std::vector<Tokens> drawn;
  for (const uint64_t seed : {1, 1, 2}) {
    how.seed = seed;
    model.rewind(0);
    drawn.push_back(generate(model, prompt, how));
  }
  expect(drawn[0] == drawn[1] && drawn[0] != drawn[2], "a seed decides");
  model.rewind(0);
  adrenoc::Generation likeliest;
  likeliest.max_tokens = 12;
  const Tokens plain = generate(model, prompt, likeliest);
  model.rewind(0);
  adrenoc::Generation banned = likeliest;
  banned.bias = {{plain[0], -1e30F}};
  expect(generate(model, prompt, banned)[0] != plain[0], "a bias bans a token");
  model.rewind(0);
  adrenoc::Generation fresh = likeliest;
  fresh.presence_penalty = 1e30F;
  Tokens once = generate(model, prompt, fresh);
  std::sort(once.begin(), once.end());
  expect(std::adjacent_find(once.begin(), once.end()) == once.end(), "no token is made twice");
  model.rewind(0);
  banned.bias = {{1 << 30, 1}};
  expect(status_of([&] { generate(model, prompt, banned); }) == ADRENOC_BAD_ARGUMENT, "none such");
  likeliest.repetition_penalty = -1;
  expect(status_of([&] { generate(model, prompt, likeliest); }) == ADRENOC_BAD_ARGUMENT, "below 0");
  expect(status_of([&] { generate(model, {-1}); }) == ADRENOC_BAD_ARGUMENT, "no such token");
  expect(status_of([&] { generate(model, {1 << 30}); }) == ADRENOC_BAD_ARGUMENT, "nor this");
  how.top_p = 7;
  expect(status_of([&] { generate(model, {1}, how); }) == ADRENOC_BAD_ARGUMENT, "no probability");
}

}  // namespace

int main(int count, char** values) {
  adrenoc::Options options;
  options.opencl_library = values[2];
  Tokens prompt;
  for (int i = 3; i < count; ++i) prompt.push_back(std::atoll(values[i]));
  try {
    adrenoc::Model model(values[1], options);
    const Tokens all = fill(model, prompt);
    go_back(model, prompt, all);
    stop_and_end(model, prompt, all);
    pick_by_logits(model, prompt, all);
    draw(model, prompt);
    model.trim();
    model.rewind(0);
    const Tokens again = fill(model, prompt);
    expect(again == all, "it is the same from run to run");
    for (const int64_t token : all) std::printf("%lld ", static_cast<long long>(token));
    std::printf("\n");
    return 0;
  } catch (const adrenoc::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
