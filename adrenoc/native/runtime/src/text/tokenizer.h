// Text to tokens and back, as the library does it that a bundle's tokenizer.json was written for,
// and conversations as one text, as a model's template writes them (adrenoc/language/turns.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/text_tables.h"

namespace adrenoc_runtime {

// Text that is given on as it comes, but for what may be the beginning of a stop.
class Stops {
 public:
  explicit Stops(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  // What can be given on now that `piece` is there.
  [[nodiscard]] std::string feed(const std::string& piece);
  // The rest, as no more comes.
  [[nodiscard]] std::string finish(const std::string& piece);
  [[nodiscard]] bool has_stopped() const { return has_stopped_; }

 private:
  [[nodiscard]] std::string give(size_t count);

  const std::vector<std::string> texts_;
  std::string kept_;
  bool has_stopped_ = false;
};

class AddedTokens {
 public:
  // `tokens` is how many there are.  Throws Failure (bad bundle) where the tables are damaged.
  AddedTokens(const TextTables& tables, const Json& said, size_t tokens);

  // Tells what a text consists of, from left to right: text, and tokens of those that are looked
  // for in text that was normalized, or of the others.  Of two that begin at a place the longer is
  // found.
  using OnText = std::function<void(size_t begin, size_t end)>;
  using OnToken = std::function<void(uint32_t token)>;
  void find(std::string_view text, bool is_normalized, const OnText& on_text,
            const OnToken& on_token) const;

 private:
  Texts contents_;  // ascending
  SortedTexts sorted_;
  Numbers<uint32_t> ids_;
  Numbers<uint8_t> flags_;
};

class Tokenizer {
 public:
  // Throws Failure (bad bundle) where the file is damaged.
  explicit Tokenizer(std::string_view file);

  // The tokens of a text, `with_special` with those that the tokenizer puts around it.  Throws
  // Failure (bad argument) where it is no UTF-8.
  [[nodiscard]] std::vector<int64_t> encode(std::string_view text, bool with_special) const;
  // The text of tokens, those left out that are special; with a mark for bytes that are no letter.
  [[nodiscard]] std::string decode(const int64_t* begin, const int64_t* end) const;
  // How the model's template writes messages; null where that is not known.
  [[nodiscard]] const Json& turns() const { return tables_.header().at("chat").at("turns"); }
  // How its makers pick tokens, by the names of adrenoc_generation.
  [[nodiscard]] const Json& sampling() const { return tables_.header().at("chat").at("sampling"); }

 private:
  // What a token adds to a text.
  [[nodiscard]] std::string write(size_t token, bool is_first) const;
  void encode_text(std::string_view text, bool is_first, std::vector<int64_t>* tokens) const;

  TextTables tables_;
  Texts texts_;
  Numbers<uint8_t> flags_;
  AddedTokens added_;
  TextSteps normalize_;
  TextSteps cut_;
  std::unique_ptr<ModelOfTokens> model_;
  std::vector<int64_t> before_;
  std::vector<int64_t> after_;
  size_t most_ = 0;   // tokens of a text; 0: any number
  size_t fills_ = 0;  // up to how many
  int64_t filler_ = 0;
  // Of the first token that is written, and of the others.
  using Replaces = std::vector<std::pair<std::string, std::string>>;
  Replaces first_replaces_;
  Replaces replaces_;
  uint64_t strips_ = 0;
  std::string continues_;  // what tokens begin with that no blank comes before; "" where none does
};

// The text of tokens as they come, in pieces that are whole letters.
class TextStream {
 public:
  explicit TextStream(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // What a token adds; of a letter that it begins, nothing yet.
  [[nodiscard]] std::string feed(int64_t token);
  // What is left when no more tokens come.
  [[nodiscard]] std::string finish();

 private:
  [[nodiscard]] std::string decode(size_t begin, size_t end) const;

  const Tokenizer* const tokenizer_;
  std::vector<int64_t> tokens_;
  // The text of those before `shown_` was given, but for those from `base_`, which the next text
  // joins.
  size_t base_ = 0;
  size_t shown_ = 0;
};

// `role` is "system", "user" or "assistant".
struct Message {
  std::string role;
  std::string content;
};

// The text of a system's message or none, then a user's and an answer in turns, a user's last, up
// to where the model is to speak.  Throws Failure: unsupported where `turns` is null, bad argument
// for other messages, bad bundle where `turns` is damaged.
[[nodiscard]] std::string render_turns(const Json& turns, const std::vector<Message>& messages);

}  // namespace adrenoc_runtime
