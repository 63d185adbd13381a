// Text to tokens and back, as the library does it that a bundle's tokenizer.json was written for,
// and conversations as one text, as a model's template writes them (adrenoc/language/turns.py).
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/text_tables.h"

namespace adrenoc_runtime {

// Text that is given on as it comes, but for what may be the beginning of a stop.
class Stops {
 public:
  explicit Stops(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  // What can be given on now that `piece` is there.
  [[nodiscard]] std::string feed(const std::string& piece) {
    kept_ += piece;
    size_t first = std::string::npos;
    for (const std::string& text : texts_) first = std::min(first, kept_.find(text));
    if (first != std::string::npos) {
      has_stopped_ = true;
      return give(first);
    }
    size_t begun = 0;  // letters at the end that a stop begins with
    for (const std::string& text : texts_) {
      for (size_t length = std::min(text.size(), kept_.size()); length > begun; --length) {
        if (kept_.compare(kept_.size() - length, length, text, 0, length) == 0) begun = length;
      }
    }
    return give(kept_.size() - begun);
  }
  // The rest, as no more comes.
  [[nodiscard]] std::string finish(const std::string& piece) {
    std::string given = feed(piece);
    return has_stopped_ ? given : given + give(kept_.size());
  }
  [[nodiscard]] bool has_stopped() const { return has_stopped_; }

 private:
  [[nodiscard]] std::string give(size_t count) {
    std::string given = kept_.substr(0, count);
    kept_.erase(0, count);
    return given;
  }

  const std::vector<std::string> texts_;
  std::string kept_;
  bool has_stopped_ = false;
};

// adrenoc/language/tables.py has the same.
constexpr uint8_t kNormalized = 1;
constexpr uint8_t kStripsLeft = 2;
constexpr uint8_t kStripsRight = 4;

class AddedTokens {
 public:
  // `tokens` is how many there are.  Throws Failure (bad bundle) where the tables are damaged.
  AddedTokens(const TextTables& tables, const Json& said, size_t tokens)
      : contents_(tables.texts(said.at("contents"))),
        sorted_(contents_),
        ids_(tables.numbers<uint32_t>(said.at("ids"), 0, tokens)),
        flags_(tables.numbers<uint8_t>(said.at("flags"))) {
    bool is_whole = ids_.count == contents_.count() && flags_.count == contents_.count();
    for (size_t i = 0; i < contents_.count(); ++i) is_whole = is_whole && !contents_[i].empty();
    if (!is_whole) refuse_bundle({"text_tables.bin has damaged tokens: ", said.where()});
  }

  // Tells what a text consists of, from left to right: text, and tokens of those that are looked
  // for in text that was normalized, or of the others.  Of two that begin at a place the longer is
  // found.
  using OnText = std::function<void(size_t begin, size_t end)>;
  using OnToken = std::function<void(uint32_t token)>;
  void find(std::string_view text, bool is_normalized, const OnText& on_text,
            const OnToken& on_token) const {
    size_t rest = 0;
    for (size_t at = 0; at < text.size();) {
      size_t found = kNoText;
      for (const auto& one : sorted_.beginnings(text.substr(at))) {
        if (((flags_[one.number] & kNormalized) != 0) == is_normalized) found = one.number;
      }
      if (found == kNoText) {
        ++at;
        continue;
      }
      size_t begin = at;
      at += contents_[found].size();
      if ((flags_[found] & kStripsLeft) != 0) begin = left_of_blanks(text, rest, begin);
      if ((flags_[found] & kStripsRight) != 0) at = right_of_blanks(text, at);
      if (rest < begin) on_text(rest, begin);
      on_token(ids_[found]);
      rest = at;
    }
    if (rest < text.size()) on_text(rest, text.size());
  }

 private:
  Texts contents_;  // ascending
  SortedTexts sorted_;
  Numbers<uint32_t> ids_;
  Numbers<uint8_t> flags_;
};

// adrenoc/language/tables.py has the same.
constexpr uint8_t kSpecial = 1;
constexpr uint8_t kByte = 2;
constexpr size_t kMostFilled = 1 << 20;
constexpr std::string_view kMark = "\xEF\xBF\xBD";

inline std::vector<int64_t> read_tokens(const Json& said) {
  std::vector<int64_t> tokens;
  for (const Json& one : said.list()) tokens.push_back(one.integer());
  return tokens;
}

inline std::vector<std::pair<std::string, std::string>> read_replaces(const Json& said) {
  std::vector<std::pair<std::string, std::string>> replaces;
  for (const Json& pair : said.list()) {
    const Json::List& two = pair.list();
    if (two.size() != 2 || two[0].text().empty()) {
      refuse_bundle({"text_tables.bin replaces nothing: ", pair.where()});
    }
    replaces.emplace_back(two[0].text(), two[1].text());
  }
  return replaces;
}

// The byte of "<0x41>".
inline char byte_of(std::string_view token) {
  uint8_t byte = 0;
  if (token.size() == 6) std::from_chars(&token[3], &token[5], byte, 16);
  return static_cast<char>(byte);
}

class Tokenizer {
 public:
  // Throws Failure (bad bundle) where the file is damaged.
  explicit Tokenizer(std::string_view file)
      : tables_(file),
        texts_(tables_.texts(tables_.header().at("tokens").at("contents"))),
        flags_(tables_.numbers<uint8_t>(tables_.header().at("tokens").at("flags"))),
        added_(tables_, tables_.header().at("added"), texts_.count()),
        normalize_(read_steps(tables_, tables_.header().at("normalize"))),
        cut_(read_steps(tables_, tables_.header().at("cut"))),
        model_(read_model(tables_, tables_.header().at("model"), texts_)) {
    const Json& around = tables_.header().at("around");
    before_ = read_tokens(around.at("before"));
    after_ = read_tokens(around.at("after"));
    most_ = static_cast<size_t>(around.at("most").count());
    fills_ = static_cast<size_t>(around.at("fills").count());
    filler_ = around.at("filler").integer();
    const Json& write = tables_.header().at("write");
    first_replaces_ = read_replaces(write.at("first"));
    replaces_ = read_replaces(write.at("replaces"));
    strips_ = write.at("strips").count();
    continues_ = write.at("continues").text();
    if (flags_.count != texts_.count()) refuse_bundle("text_tables.bin has not a flag a token");
    if (fills_ > kMostFilled) refuse_bundle("text_tables.bin fills texts up without end");
  }

  // The tokens of a text, `with_special` with those that the tokenizer puts around it.  Throws
  // Failure (bad argument) where it is no UTF-8.
  [[nodiscard]] std::vector<int64_t> encode(std::string_view text, bool with_special) const {
    if (!is_utf8(text)) refuse_argument("the text is no UTF-8");
    std::vector<int64_t> tokens;
    added_.find(
        text, false,
        [&](size_t begin, size_t end) {
          encode_text(text.substr(begin, end - begin), begin == 0, &tokens);
        },
        [&](uint32_t token) { tokens.push_back(token); });
    const size_t around = with_special ? before_.size() + after_.size() : 0;
    if (most_ != 0) tokens.resize(std::min(tokens.size(), most_ - std::min(most_, around)));
    if (with_special) {
      tokens.insert(tokens.begin(), before_.begin(), before_.end());
      tokens.insert(tokens.end(), after_.begin(), after_.end());
    }
    if (tokens.size() < fills_) tokens.resize(fills_, filler_);
    return tokens;
  }
  // The text of tokens, those left out that are special; with a mark for bytes that are no letter.
  [[nodiscard]] std::string decode(const int64_t* begin, const int64_t* end) const {
    std::string text;
    std::string bytes;  // in a row, which are letters together or each a mark
    const auto add_bytes = [&] {
      if (is_utf8(bytes)) {
        text += bytes;
      } else {
        for (size_t i = 0; i < bytes.size(); ++i) text += kMark;
      }
      bytes.clear();
    };
    bool is_first = true;
    for (const int64_t* at = begin; at != end; ++at) {
      if (*at < 0 || static_cast<uint64_t>(*at) >= texts_.count()) continue;
      const auto token = static_cast<size_t>(*at);
      if ((flags_[token] & kSpecial) != 0) continue;
      if ((flags_[token] & kByte) != 0) {
        bytes += byte_of(texts_[token]);
      } else {
        add_bytes();
        text += write(token, is_first);
      }
      is_first = false;
    }
    add_bytes();
    size_t blanks = 0;
    while (blanks < strips_ && blanks < text.size() && text[blanks] == ' ') ++blanks;
    return with_marks(std::string_view(text).substr(blanks));
  }
  // How the model's template writes messages; null where that is not known.
  [[nodiscard]] const Json& turns() const { return tables_.header().at("chat").at("turns"); }
  // How its makers pick tokens, by the names of adrenoc_generation.
  [[nodiscard]] const Json& sampling() const { return tables_.header().at("chat").at("sampling"); }

 private:
  // What a token adds to a text.
  [[nodiscard]] std::string write(size_t token, bool is_first) const {
    std::string text(texts_[token]);
    if (!is_first && !continues_.empty()) {
      const bool goes_on = text.compare(0, continues_.size(), continues_) == 0;
      text.replace(0, goes_on ? continues_.size() : 0, goes_on ? "" : " ");
    }
    for (const auto& [from, to] : is_first ? first_replaces_ : replaces_)
      replace_all(from, to, &text);
    return text;
  }
  void encode_text(std::string_view text, bool is_first, std::vector<int64_t>* tokens) const {
    std::vector<Piece> whole = {{std::string(text), is_first}};
    for (const auto& step : normalize_) step->apply(&whole);
    const std::string_view normalized = whole.front().text;
    added_.find(
        normalized, true,
        [&](size_t begin, size_t end) {
          std::vector<Piece> pieces = {
              {std::string(normalized.substr(begin, end - begin)), is_first && begin == 0}};
          for (const auto& step : cut_) step->apply(&pieces);
          for (const Piece& piece : pieces) model_->encode(piece.text, tokens);
        },
        [&](uint32_t token) { tokens->push_back(token); });
  }

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

// Tokens that may hold one letter: a letter has at most as many bytes.
constexpr size_t kLongestLetter = 4;

// A text without as many letters at its beginning as another has.
inline std::string without_letters(std::string_view text, std::string_view shown) {
  size_t at = 0;
  for (size_t i = 0; i < shown.size() && at < text.size(); i += code_point_at(shown, i).bytes) {
    at += code_point_at(text, at).bytes;
  }
  return std::string(text.substr(at));
}

// The text of tokens as they come, in pieces that are whole letters.
class TextStream {
 public:
  explicit TextStream(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // What a token adds; of a letter that it begins, nothing yet.
  [[nodiscard]] std::string feed(int64_t token) {
    tokens_.push_back(token);
    // With some tokens before it: the blank that begins a text may be dropped.
    const std::string before = decode(base_, shown_);
    const std::string whole = decode(base_, tokens_.size());
    const bool is_unfinished = whole.size() >= kMark.size() &&
                               whole.compare(whole.size() - kMark.size(), kMark.size(), kMark) == 0;
    if (is_unfinished && tokens_.size() - shown_ < kLongestLetter) return "";
    base_ = shown_;
    shown_ = tokens_.size();
    return without_letters(whole, before);
  }
  // What is left when no more tokens come.
  [[nodiscard]] std::string finish() {
    const std::string before = decode(base_, shown_);
    const std::string whole = decode(base_, tokens_.size());
    base_ = shown_ = tokens_.size();
    return without_letters(whole, before);
  }

 private:
  [[nodiscard]] std::string decode(size_t begin, size_t end) const {
    return tokenizer_->decode(tokens_.data() + begin, tokens_.data() + end);
  }

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

constexpr char kDate = 1;  // around the form of a date
constexpr size_t kMostOfDate = 256;

// The text with each date in place of its form.
inline std::string with_dates(const std::string& text) {
  std::string made;
  size_t rest = 0;
  for (size_t at = text.find(kDate); at != std::string::npos; at = text.find(kDate, rest)) {
    const size_t end = text.find(kDate, at + 1);
    if (end == std::string::npos) break;
    const std::string form = text.substr(at + 1, end - at - 1);
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    char date[kMostOfDate];
    const size_t length = std::strftime(date, sizeof(date), form.c_str(), &local);
    made.append(text, rest, at - rest).append(date, length);
    rest = end + 1;
  }
  return made.append(text, rest, std::string::npos);
}

// What Python's str.strip takes away.
inline bool is_blank(uint32_t number) {
  return is_space(number) || (number >= 0x1C && number <= 0x1F);
}

inline std::string trimmed(std::string_view text) {
  size_t begin = text.size();
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (!is_blank(point.number)) {
      begin = std::min(begin, at);
      end = at + point.bytes;
    }
    at += point.bytes;
  }
  return begin < end ? std::string(text.substr(begin, end - begin)) : std::string();
}

inline std::string content_of(const Json& turns, const Message& message) {
  std::string content = message.content;
  const std::string& drops = turns.at("drops").text();
  if (message.role == "assistant" && !drops.empty()) {
    if (const size_t at = content.rfind(drops); at != std::string::npos) {
      const std::string& blanks = turns.at("drops_blanks").text();
      content.erase(0,
                    std::min(content.find_first_not_of(blanks, at + drops.size()), content.size()));
    }
  }
  for (const Json& role : turns.at("trims").list()) {
    if (role.text() == message.role) return trimmed(content);
  }
  return content;
}

// The text of a system's message or none, then a user's and an answer in turns, a user's last, up
// to where the model is to speak.  Throws Failure: unsupported where `turns` is null, bad argument
// for other messages, bad bundle where `turns` is damaged.
[[nodiscard]] inline std::string render_turns(const Json& turns,
                                              const std::vector<Message>& messages) {
  if (turns.is_null()) {
    throw Failure(
        ADRENOC_UNSUPPORTED,
        "the bundle does not hold how its model wants turns written: no template lay beside "
        "the model, or its decisions.json says why it was left out (\"chats on the "
        "device\")");
  }
  for (const Message& message : messages) {
    if (message.content.empty())
      refuse_argument({"a message of the role ", message.role, " is empty"});
  }
  auto rest = messages.begin();
  std::string text = turns.at("begin").text();
  if (rest != messages.end() && rest->role == "system") {
    if (turns.at("begin_system").is_null()) {
      throw Failure(ADRENOC_UNSUPPORTED,
                    "the model's template takes no message of a system: put it before the first of "
                    "the user");
    }
    text = turns.at("begin_system").text() + content_of(turns, *rest) +
           turns.at("after_system").text();
    ++rest;
  }
  const auto count = messages.end() - rest;
  for (auto at = rest; at != messages.end(); ++at) {
    const bool is_users = (at - rest) % 2 == 0;
    if (at->role != (is_users ? "user" : "assistant")) {
      refuse_argument({"message ", at - messages.begin(), " has the role ", at->role, ", expected ",
                       (is_users ? "user" : "assistant"),
                       ": a system's may come first, then a user's and an answer in turns"});
    }
    if (at != rest) text += turns.at(is_users ? "to_user" : "to_answer").text();
    text += content_of(turns, *at);
  }
  if (count % 2 == 0)
    refuse_argument({"the last message is not the user's, so that there is nothing to answer"});
  return with_dates(text + turns.at("end").text());
}

}  // namespace adrenoc_runtime
