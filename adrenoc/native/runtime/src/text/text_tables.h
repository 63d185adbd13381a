// The file text_tables.bin of a bundle, which adrenoc/language/tables.py made of a tokenizer.json:
// steps in which texts are changed and cut into pieces, and what makes tokens of the pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/failure.h"
#include "base/json.h"
#include "base/utf8.h"

namespace adrenoc_runtime {

// Numbers of the file, as they lie there.
template <typename Number>
struct Numbers {
  const Number* data = nullptr;
  size_t count = 0;

  Number operator[](size_t at) const { return data[at]; }
};

// The first place from `low` on, up to `high`, that is not `less`, as those before it are.
template <typename Less>
size_t first_not(size_t low, size_t high, Less less) {
  while (low < high) {
    const size_t at = (low + high) / 2;
    if (less(at)) {
      low = at + 1;
    } else {
      high = at;
    }
  }
  return low;
}

// Texts of the file, one behind the other.
struct Texts {
  Numbers<uint32_t> starts;
  Numbers<char> bytes;

  [[nodiscard]] size_t count() const { return starts.count - 1; }
  [[nodiscard]] std::string_view operator[](size_t at) const {
    return {bytes.data + starts[at], starts[at + 1] - starts[at]};
  }
};

constexpr std::string_view kTablesName = "text_tables.bin";
constexpr std::string_view kTablesMagic = "adrtext2";
constexpr size_t kTablesHeaderAt = 16;

[[noreturn]] inline void refuse_tables(Phrases what) {
  refuse_bundle({kTablesName, " ", sentence(what)});
}

// The memory of the file, and the object before its arrays.
class TextTables {
 public:
  // Throws Failure (bad bundle) where it is no such file.
  explicit TextTables(std::string_view content)
      : memory_((content.size() + 7) / 8), bytes_(content.size()) {
    auto* data = reinterpret_cast<char*>(memory_.data());
    std::copy(content.begin(), content.end(), data);
    if (content.size() < kTablesHeaderAt ||
        content.substr(0, kTablesMagic.size()) != kTablesMagic) {
      refuse_tables({"has not the form that this runtime reads"});
    }
    if (memory_[1] > bytes_ - kTablesHeaderAt || memory_[1] % 8 != 0) refuse_tables({"is cut off"});
    const auto header = static_cast<size_t>(memory_[1]);
    begin_ = kTablesHeaderAt + header;
    parsed_.push_back(Json::parse({data + kTablesHeaderAt, header}, std::string(kTablesName)));
    header_ = parsed_.data();
  }
  TextTables(const TextTables&) = delete;
  TextTables& operator=(const TextTables&) = delete;

  [[nodiscard]] const Json& header() const { return *header_; }
  // The array of a place that the header names, of `count` numbers unless that is 0.  Throws
  // Failure (bad bundle) where there is none, or a number is `below` or more.
  template <typename Number>
  [[nodiscard]] Numbers<Number> numbers(const Json& place, size_t count = 0,
                                        uint64_t below = UINT64_MAX) const {
    const uint64_t at = place.at("at").count();
    const uint64_t held = place.at("count").count();
    const size_t room = bytes_ - begin_;
    if (place.at("bytes").count() != sizeof(Number) || at % 8 != 0 || at > room ||
        held > (room - at) / sizeof(Number) || (count != 0 && held != count)) {
      refuse_tables({"has no such array: ", place.where()});
    }
    const auto* data = reinterpret_cast<const char*>(memory_.data()) + begin_ + at;
    const Numbers<Number> found{reinterpret_cast<const Number*>(data), static_cast<size_t>(held)};
    for (size_t i = 0; below != UINT64_MAX && i < held; ++i) {
      if (static_cast<uint64_t>(found[i]) >= below)
        refuse_tables({"has a number that is too large: ", place.where()});
    }
    return found;
  }
  // Where things begin in an array of `end` elements: ascending.
  [[nodiscard]] Numbers<uint32_t> starts(const Json& place, size_t end) const {
    const auto found = numbers<uint32_t>(place);
    uint64_t last = 0;
    for (size_t i = 0; i < found.count; ++i) {
      if (found[i] < last || found[i] > end)
        refuse_tables({"has no ascending numbers: ", place.where()});
      last = found[i];
    }
    if (found.count == 0 || last != end) refuse_tables({"has no end: ", place.where()});
    return found;
  }
  [[nodiscard]] Texts texts(const Json& place) const {
    const auto bytes = numbers<char>(place.at("bytes"));
    return {starts(place.at("starts"), bytes.count), bytes};
  }

 private:
  std::vector<uint64_t> memory_;
  std::vector<Json> parsed_;  // one
  const Json* header_ = nullptr;
  size_t begin_ = 0;  // of the arrays, in bytes
  size_t bytes_ = 0;
};

// The number of no text.
constexpr uint32_t kNoText = UINT32_MAX;

class SortedTexts {
 public:
  struct Found {
    uint32_t number;  // of the text
    size_t bytes;
  };

  // They ascend as they lie there, or as `order` has their numbers.
  explicit SortedTexts(Texts texts, Numbers<uint32_t> order = {}) : texts_(texts), order_(order) {}

  // Those that `rest` begins with, the shortest first; none is empty.
  [[nodiscard]] std::vector<Found> beginnings(std::string_view rest) const {
    std::vector<Found> found;
    size_t low = 0;
    size_t high = order_.data == nullptr ? texts_.count() : order_.count;
    // Those that begin as the text does, a letter more each time.
    for (size_t length = 0; length < rest.size() && low < high; ++length) {
      const auto letter = static_cast<uint8_t>(rest[length]);
      const auto bound = [&](uint32_t least) {
        return first_not(low, high, [&](size_t at) {
          const std::string_view text = texts_[number(at)];
          return text.size() <= length || static_cast<uint8_t>(text[length]) < least;
        });
      };
      const size_t end = bound(letter + 1u);
      low = bound(letter);
      high = end;
      if (low < high && texts_[number(low)].size() == length + 1) {
        found.push_back({number(low), length + 1});
      }
    }
    return found;
  }
  // The number of a text; kNoText where it is none of these.
  [[nodiscard]] uint32_t find(std::string_view text) const {
    const std::vector<Found> found = beginnings(text);
    return found.empty() || found.back().bytes != text.size() ? kNoText : found.back().number;
  }

 private:
  [[nodiscard]] uint32_t number(size_t at) const {
    return order_.data == nullptr ? static_cast<uint32_t>(at) : order_[at];
  }

  Texts texts_;
  Numbers<uint32_t> order_;
};

class ModelOfTokens {
 public:
  virtual ~ModelOfTokens() = default;
  // Adds the tokens of a piece.
  virtual void encode(std::string_view piece, std::vector<int64_t>* tokens) const = 0;
};

// Byte-pair encoding: a piece of text begins as its bytes or letters, and pairs become one, the
// pair that was learned first before the others.
class Merger final : public ModelOfTokens {
 public:
  // `texts` are those of the tokens.  Throws Failure (bad bundle) where the tables are damaged.
  Merger(const TextTables& tables, const Json& said, Texts texts)
      : texts_(texts, tables.numbers<uint32_t>(said.at("order"), 0, texts.count())),
        is_bytes_(said.at("is_bytes").boolean()),
        takes_whole_(said.at("takes_whole").boolean()),
        fuses_(said.at("fuses").boolean()),
        unknown_(static_cast<uint32_t>(said.at("unknown").count())),
        single_(tables.numbers<uint32_t>(said.at("single"), 256)),
        merges_(tables.numbers<uint32_t>(said.at("merges"))) {
    starts_ = tables.starts(said.at("starts"), merges_.count / 3);
    const auto is_token = [&](uint32_t one) { return one == kNoText || one < texts.count(); };
    bool is_whole = merges_.count % 3 == 0 && starts_.count == texts.count() + 1 &&
                    is_token(unknown_) &&
                    std::all_of(single_.data, single_.data + single_.count, is_token);
    for (size_t i = 0; i < merges_.count; i += 3) {
      is_whole = is_whole && merges_[i] < texts.count() && merges_[i + 2] < texts.count();
    }
    if (!is_whole) refuse_bundle({"text_tables.bin has damaged merges: ", said.where()});
  }

  void encode(std::string_view piece, std::vector<int64_t>* tokens) const override {
    if (takes_whole_) {
      if (const uint32_t token = texts_.find(piece); token != kNoText) {
        tokens->push_back(token);
        return;
      }
    }
    const std::vector<uint32_t> first = begin(piece);
    std::vector<Symbol> symbols;
    for (size_t i = 0; i < first.size(); ++i) {
      symbols.push_back({first[i], i == 0 ? i : i - 1, i + 1 == first.size() ? i : i + 1, true});
    }
    // What was learned first, and of these the leftmost.
    using Waiting = std::tuple<uint32_t, size_t, uint32_t>;  // rank, place, made
    std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting;
    const auto await = [&](size_t at) {
      const Symbol& symbol = symbols[at];
      if (symbol.next == at) return;
      const auto merge = merge_of(symbol.token, symbols[symbol.next].token);
      if (merge.has_value()) waiting.emplace(merge->rank, at, merge->made);
    };
    for (size_t i = 0; i < symbols.size(); ++i) await(i);
    while (!waiting.empty()) {
      const auto [rank, at, made] = waiting.top();
      waiting.pop();
      Symbol& symbol = symbols[at];
      if (!symbol.is_there || symbol.next == at) continue;
      Symbol& next = symbols[symbol.next];
      // What the two were when this was found may have become something else.
      const auto merge = merge_of(symbol.token, next.token);
      if (!merge.has_value() || merge->made != made) continue;
      symbol.token = made;
      next.is_there = false;
      if (next.next == symbol.next) {
        symbol.next = at;
      } else {
        symbols[next.next].before = at;
        symbol.next = next.next;
      }
      if (symbol.before != at) await(symbol.before);
      await(at);
    }
    for (size_t at = 0; at < symbols.size();
         at = symbols[at].next == at ? symbols.size() : symbols[at].next) {
      tokens->push_back(symbols[at].token);
    }
  }

 private:
  struct Symbol {
    uint32_t token;
    size_t before;  // of the piece's symbols; itself where there is none
    size_t next;
    bool is_there;
  };
  struct Merge {
    uint32_t rank;
    uint32_t made;
  };

  [[nodiscard]] std::optional<Merge> merge_of(uint32_t left, uint32_t right) const {
    const size_t end = starts_[left + 1];
    const size_t at =
        first_not(starts_[left], end, [&](size_t one) { return merges_[3 * one] < right; });
    if (at == end || merges_[3 * at] != right) return std::nullopt;
    return Merge{merges_[3 * at + 1], merges_[3 * at + 2]};
  }
  [[nodiscard]] std::vector<uint32_t> begin(std::string_view piece) const {
    std::vector<uint32_t> tokens;
    bool has_unknown = false;  // which comes before the next one that is known
    const auto add_unknown = [&] {
      if (has_unknown) tokens.push_back(unknown_);
      has_unknown = false;
    };
    for (size_t at = 0; at < piece.size();) {
      const size_t bytes = is_bytes_ ? 1 : code_point_at(piece, at).bytes;
      const std::string_view letter = piece.substr(at, bytes);
      at += bytes;
      const auto of_byte = [&](char byte) { return single_[static_cast<uint8_t>(byte)]; };
      const uint32_t token = is_bytes_ ? of_byte(letter[0]) : texts_.find(letter);
      if (token != kNoText) {
        add_unknown();
        tokens.push_back(token);
      } else if (std::all_of(letter.begin(), letter.end(),
                             [&](char byte) { return of_byte(byte) != kNoText; })) {
        std::transform(letter.begin(), letter.end(), std::back_inserter(tokens), of_byte);
      } else if (unknown_ != kNoText) {
        if (!fuses_) add_unknown();
        has_unknown = true;
      }
    }
    add_unknown();
    return tokens;
  }

  SortedTexts texts_;
  bool is_bytes_;
  bool takes_whole_;
  bool fuses_;
  uint32_t unknown_;
  Numbers<uint32_t> single_;  // the token of each byte
  Numbers<uint32_t> starts_;  // of the merges of each left token
  Numbers<uint32_t> merges_;  // rows of (right, rank, made), by the right token
};

// Unigram: of all tokens that a piece of text may consist of, those whose scores have the best sum.
class Scores final : public ModelOfTokens {
 public:
  Scores(const TextTables& tables, const Json& said, Texts texts)
      : unknown_(static_cast<uint32_t>(said.at("unknown").count())),
        single_(tables.numbers<uint32_t>(said.at("single"), 256)),
        scores_(tables.numbers<double>(said.at("scores"))),
        texts_(texts, tables.numbers<uint32_t>(said.at("order"), 0, scores_.count - 1)) {
    if (scores_.count - 1 > texts.count() || unknown_ >= scores_.count) {
      refuse_bundle({"text_tables.bin has not a score a token: ", said.where()});
    }
  }
  void encode(std::string_view piece, std::vector<int64_t>* tokens) const override {
    // How a beginning of the piece is reached best, and where its last token begins.
    struct Reached {
      double score = 0;
      size_t begin = SIZE_MAX;
      uint32_t token = 0;
    };
    std::vector<Reached> reached(piece.size() + 1);
    for (size_t at = 0; at < piece.size();) {
      const auto offer = [&](uint32_t token, double score, size_t bytes) {
        Reached& there = reached[at + bytes];
        score += reached[at].score;
        if (there.begin == SIZE_MAX || score > there.score) there = {score, at, token};
      };
      const size_t letter = code_point_at(piece, at).bytes;
      bool has_letter = false;
      for (const auto& found : texts_.beginnings(piece.substr(at))) {
        offer(found.number, scores_[found.number], found.bytes);
        has_letter = has_letter || found.bytes == letter;
      }
      if (!has_letter) offer(unknown_, scores_[scores_.count - 1], letter);
      at += letter;
    }
    std::vector<size_t> ends;  // of tokens, the last first
    for (size_t end = piece.size(); end > 0; end = reached[end].begin) ends.push_back(end);
    size_t begin = 0;
    for (size_t i = ends.size(); i > 0; --i) {
      const size_t end = ends[i - 1];
      const bool is_unknown = reached[end].token == unknown_;
      if (is_unknown && i > 1 && reached[ends[i - 2]].token == unknown_) continue;
      if (is_unknown) {
        encode_unknown(piece.substr(begin, end - begin), tokens);
      } else {
        tokens->push_back(reached[end].token);
      }
      begin = end;
    }
  }

 private:
  // Adds the tokens of letters in a row that are no tokens.
  void encode_unknown(std::string_view letters, std::vector<int64_t>* tokens) const {
    const auto of_byte = [&](char byte) { return single_[static_cast<uint8_t>(byte)]; };
    const uint32_t whole = texts_.find(letters);
    if (whole == kNoText && std::all_of(letters.begin(), letters.end(),
                                        [&](char byte) { return of_byte(byte) != kNoText; })) {
      for (const char byte : letters) tokens->push_back(of_byte(byte));
    } else {
      tokens->push_back(whole == kNoText ? unknown_ : whole);
    }
  }

  uint32_t unknown_;
  Numbers<uint32_t> single_;  // the token of each byte
  Numbers<double> scores_;    // and behind those of the tokens, that of a letter which is none
  SortedTexts texts_;
};

// WordPiece: of a word the longest token that it begins with, and so on for what is left.
class WordPieces final : public ModelOfTokens {
 public:
  WordPieces(const TextTables& tables, const Json& said, Texts texts)
      : unknown_(said.at("unknown").integer()),
        continues_(said.at("continues").text()),
        most_letters_(said.at("most_letters").count()),
        texts_(texts, tables.numbers<uint32_t>(said.at("order"), 0, texts.count())) {}
  void encode(std::string_view piece, std::vector<int64_t>* tokens) const override {
    uint64_t letters = 0;
    for (size_t at = 0; at < piece.size(); at += code_point_at(piece, at).bytes) ++letters;
    std::vector<int64_t> found;
    bool is_known = letters <= most_letters_;
    for (size_t at = 0; is_known && at < piece.size();) {
      const std::string before = at == 0 ? "" : continues_;
      const auto beginnings = texts_.beginnings(before + std::string(piece.substr(at)));
      is_known = !beginnings.empty() && beginnings.back().bytes > before.size();
      if (!is_known) break;
      found.push_back(beginnings.back().number);
      at += beginnings.back().bytes - before.size();
    }
    if (!is_known) found = {unknown_};
    tokens->insert(tokens->end(), found.begin(), found.end());
  }

 private:
  int64_t unknown_;
  std::string continues_;  // what tokens begin with that begin no word
  uint64_t most_letters_;
  SortedTexts texts_;
};

// `texts` are those of the tokens.  Throws Failure (bad bundle) where the tables are damaged, or
// name a model that is not known.
[[nodiscard]] inline std::unique_ptr<ModelOfTokens> read_model(const TextTables& tables,
                                                               const Json& said, Texts texts) {
  const std::string& kind = said.at("kind").text();
  if (kind == "merges") return std::make_unique<Merger>(tables, said, texts);
  if (kind == "scores") return std::make_unique<Scores>(tables, said, texts);
  if (kind == "words") return std::make_unique<WordPieces>(tables, said, texts);
  refuse_bundle({"text_tables.bin has a model that is not known: ", said.at("kind").where()});
}

// A part of a text; `is_first` of that which the whole text begins with.
struct Piece {
  std::string text;
  bool is_first;
};

class TextStep {
 public:
  virtual ~TextStep() = default;
  // Changes pieces, or puts more in their place; none of them is empty.
  virtual void apply(std::vector<Piece>* pieces) const = 0;
};

using TextSteps = std::vector<std::unique_ptr<TextStep>>;

// Throws Failure (bad bundle) where the tables are damaged, or name a step that is not known.
[[nodiscard]] TextSteps read_steps(const TextTables& tables, const Json& said);

// Puts one text in place of another, wherever that is.
void replace_all(std::string_view from, std::string_view to, std::string* text);

}  // namespace adrenoc_runtime
