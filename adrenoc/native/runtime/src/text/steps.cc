#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/failure.h"
#include "base/utf8.h"
#include "text/text_tables.h"

namespace adrenoc_runtime {
namespace {

// Unicode's normal forms C and D (Annex 15), by the tables of a bundle.

// Text below it is in form C already; in UTF-8 it has no byte from the other on.
constexpr uint32_t kFirstMark = 0x300;
constexpr uint8_t kFirstMarkByte = 0xCC;
// Text of bytes below it is in form D, too.
constexpr uint8_t kFirstDecomposed = 0xC3;
// Syllables of Hangul are computed (chapter 3.12 of the standard).
constexpr uint32_t kSyllables = 0xAC00;
constexpr uint32_t kLeads = 0x1100;
constexpr uint32_t kVowels = 0x1161;
constexpr uint32_t kTails = 0x11A7;
constexpr uint32_t kLeadCount = 19;
constexpr uint32_t kVowelCount = 21;
constexpr uint32_t kTailCount = 28;
constexpr uint32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

class NormalForm {
 public:
  // Throws Failure (bad bundle) where the tables are none.
  NormalForm(const TextTables& tables, const Json& said)
      : points_(tables.numbers<uint32_t>(said.at("points"))),
        parts_(tables.numbers<uint32_t>(said.at("parts"), 0, 0x110000)),
        starts_(tables.starts(said.at("starts"), parts_.count)),
        marked_(tables.numbers<uint32_t>(said.at("marked"))),
        ranks_(tables.numbers<uint32_t>(said.at("ranks"), marked_.count)),
        pairs_(tables.numbers<uint32_t>(said.at("pairs"), 0, 0x110000)) {
    if (starts_.count != points_.count + 1 || pairs_.count % 3 != 0) {
      refuse_bundle({"text_tables.bin has no table of a normal form: ", said.where()});
    }
  }

  // The text in form C, or in form D unless it `composes`.
  [[nodiscard]] std::string compose(std::string_view text, bool composes) const {
    const uint8_t first = composes ? kFirstMarkByte : kFirstDecomposed;
    const auto is_low = [&](char byte) { return static_cast<uint8_t>(byte) < first; };
    if (std::all_of(text.begin(), text.end(), is_low)) return std::string(text);
    std::u32string parts;
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = code_point_at(text, at);
      at += point.bytes;
      decompose(point.number, &parts);
    }
    // Marks in a row, in the order of their ranks.
    for (auto begin = parts.begin(); begin != parts.end();) {
      if (rank(*begin) == 0) {
        ++begin;
        continue;
      }
      const auto end = std::find_if(begin, parts.end(), [&](char32_t p) { return rank(p) == 0; });
      std::stable_sort(begin, end, [&](char32_t a, char32_t b) { return rank(a) < rank(b); });
      begin = end;
    }
    std::u32string made;
    size_t starter = std::u32string::npos;
    uint32_t last = 0;  // the rank of what was kept last behind the starter
    for (const char32_t point : parts) {
      const uint32_t own = rank(point);
      if (!composes) starter = std::u32string::npos;
      const bool is_next = starter != std::u32string::npos && made.size() == starter + 1;
      if (starter != std::u32string::npos && (is_next || (last != 0 && last < own))) {
        if (const uint32_t together = pair(made[starter], point)) {
          made[starter] = together;
          continue;
        }
      }
      if (own == 0) starter = made.size();
      last = own;
      made.push_back(point);
    }
    std::string composed;
    for (const char32_t point : made) append_utf8(point, &composed);
    return composed;
  }

 private:
  void decompose(uint32_t point, std::u32string* parts) const {
    const uint32_t syllable = point - kSyllables;
    if (syllable < kSyllableCount) {
      parts->push_back(kLeads + syllable / (kVowelCount * kTailCount));
      parts->push_back(kVowels + syllable / kTailCount % kVowelCount);
      if (syllable % kTailCount != 0) parts->push_back(kTails + syllable % kTailCount);
      return;
    }
    const uint32_t* end = points_.data + points_.count;
    const uint32_t* found = std::lower_bound(points_.data, end, point);
    if (found == end || *found != point) {
      parts->push_back(point);
      return;
    }
    const size_t at = found - points_.data;
    parts->append(parts_.data + starts_[at], parts_.data + starts_[at + 1]);
  }
  [[nodiscard]] uint32_t rank(uint32_t point) const {
    if (point < kFirstMark) return 0;
    const uint32_t* end = marked_.data + marked_.count;
    const uint32_t* found = std::lower_bound(marked_.data, end, point);
    return found == end || *found != point ? 0 : ranks_[found - marked_.data];
  }
  // What two make together; 0 for nothing.
  [[nodiscard]] uint32_t pair(uint32_t first, uint32_t second) const {
    if (first - kLeads < kLeadCount && second - kVowels < kVowelCount) {
      return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
    }
    if (first - kSyllables < kSyllableCount && (first - kSyllables) % kTailCount == 0 &&
        second - kTails - 1 < kTailCount - 1) {
      return first + (second - kTails);
    }
    const auto wanted = std::make_pair(first, second);
    const auto at_row = [&](size_t row) {
      return std::make_pair(pairs_[3 * row], pairs_[3 * row + 1]);
    };
    const size_t rows = pairs_.count / 3;
    const size_t row = first_not(0, rows, [&](size_t one) { return at_row(one) < wanted; });
    return row < rows && at_row(row) == wanted ? pairs_[3 * row + 2] : 0;
  }

  Numbers<uint32_t> points_;
  Numbers<uint32_t> parts_;
  Numbers<uint32_t> starts_;
  Numbers<uint32_t> marked_;
  Numbers<uint32_t> ranks_;
  Numbers<uint32_t> pairs_;
};

constexpr size_t kPage = 256;
constexpr uint16_t kAccepts = 1 << 15;

// Automata that find what a pattern matches in a text (adrenoc/language/pattern.py).
class Automaton {
 public:
  struct Span {
    size_t begin;
    size_t end;
    bool is_match;
  };

  // Throws Failure (bad bundle) where the tables are damaged.
  Automaton(const TextTables& tables, const Json& said)
      : columns_(static_cast<size_t>(said.at("columns").count())) {
    if (columns_ < 2) refuse_bundle({"text_tables.bin has no automaton: ", said.where()});
    classes_ = tables.numbers<uint8_t>(said.at("classes"), 0, columns_ - 1);
    pages_ = tables.numbers<uint16_t>(said.at("pages"), 0x110000 / kPage, classes_.count / kPage);
    steps_ = tables.numbers<uint16_t>(said.at("steps"));
    const size_t states = steps_.count / columns_;
    bool is_whole = steps_.count == states * columns_ && states >= 2;
    for (size_t i = 0; i < steps_.count; ++i) {
      is_whole = is_whole && (steps_[i] & ~kAccepts) < states;
    }
    if (!is_whole) refuse_bundle({"text_tables.bin has a damaged automaton: ", said.where()});
  }

  // The matches of a text from left to right, and what is between them.
  [[nodiscard]] std::vector<Span> find(std::string_view text) const {
    std::vector<Span> spans;
    size_t rest = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t end = match(text, at);
      if (end == at) {
        at += code_point_at(text, at).bytes;
        continue;
      }
      if (rest < at) spans.push_back({rest, at, false});
      spans.push_back({at, end, true});
      rest = at = end;
    }
    if (rest < text.size()) spans.push_back({rest, text.size(), false});
    return spans;
  }

 private:
  // Where the match ends that begins at `at`; `at` where none does.
  [[nodiscard]] size_t match(std::string_view text, size_t at) const {
    size_t end = at;
    for (size_t state = 1; state != 0;) {
      const bool is_over = at == text.size();
      const CodePoint point = is_over ? CodePoint{0, 0, true} : code_point_at(text, at);
      const size_t kind =
          is_over ? columns_ - 1
                  : classes_[kPage * pages_[point.number / kPage] + point.number % kPage];
      const uint16_t step = steps_[state * columns_ + kind];
      if ((step & kAccepts) != 0) end = at;
      if (is_over) break;
      state = step & ~kAccepts;
      at += point.bytes;
    }
    return end;
  }

  size_t columns_;
  Numbers<uint16_t> pages_;
  Numbers<uint8_t> classes_;
  Numbers<uint16_t> steps_;
};

// The longest cluster that a map takes as one letter.
constexpr size_t kMostOfCluster = 5;

class Compose final : public TextStep {
 public:
  Compose(const TextTables& tables, const Json& said)
      : form_(tables, said), composes_(said.at("composes").boolean()) {}
  void apply(std::vector<Piece>* pieces) const override {
    for (Piece& piece : *pieces) piece.text = form_.compose(piece.text, composes_);
  }

 private:
  NormalForm form_;
  bool composes_;
};

// Puts a text in place of each match, or on both sides of it.
class Swap final : public TextStep {
 public:
  Swap(const TextTables& tables, const Json& said)
      : automaton_(tables, said), to_(said.at("to").text()), keeps_(said.at("keeps").boolean()) {}
  void apply(std::vector<Piece>* pieces) const override {
    for (Piece& piece : *pieces) {
      std::string made;
      for (const auto& span : automaton_.find(piece.text)) {
        if (span.is_match) made.append(to_);
        if (!span.is_match || keeps_) made.append(piece.text, span.begin, span.end - span.begin);
        if (span.is_match && keeps_) made.append(to_);
      }
      piece.text = std::move(made);
    }
  }

 private:
  Automaton automaton_;
  std::string to_;
  bool keeps_;
};

// Puts texts in place of letters, and of short clusters of them (adrenoc/language/text_steps.py).
class Map final : public TextStep {
 public:
  Map(const TextTables& tables, const Json& said)
      : keys_(tables.texts(said.at("keys"))), values_(tables.texts(said.at("values"))) {
    if (keys_.count() != values_.count()) {
      refuse_bundle({"text_tables.bin has a damaged map: ", said.where()});
    }
    if (!said.at("clusters").is_null()) clusters_.emplace(tables, said.at("clusters"));
  }
  void apply(std::vector<Piece>* pieces) const override {
    for (Piece& piece : *pieces) {
      const std::string_view text = piece.text;
      std::string made;
      if (clusters_.has_value()) {
        for (const auto& span : clusters_->find(text)) {
          const std::string_view cluster = text.substr(span.begin, span.end - span.begin);
          if (cluster.size() > kMostOfCluster || !put(cluster, &made)) put_letters(cluster, &made);
        }
      } else {
        put_letters(text, &made);
      }
      piece.text = std::move(made);
    }
  }

 private:
  // Puts what the shortest key becomes that a text begins with; returns whether there is one.
  bool put(std::string_view text, std::string* made) const {
    const auto found = SortedTexts(keys_).beginnings(text);
    if (!found.empty()) made->append(values_[found.front().number]);
    return !found.empty();
  }
  void put_letters(std::string_view text, std::string* made) const {
    for (size_t at = 0; at < text.size();) {
      const std::string_view letter = text.substr(at, code_point_at(text, at).bytes);
      if (!put(letter, made)) made->append(letter);
      at += letter.size();
    }
  }

  Texts keys_;
  Texts values_;
  std::optional<Automaton> clusters_;
};

class Strip final : public TextStep {
 public:
  explicit Strip(const Json& said)
      : is_left_(said.at("left").boolean()), is_right_(said.at("right").boolean()) {}
  void apply(std::vector<Piece>* pieces) const override {
    for (Piece& piece : *pieces) {
      std::string& text = piece.text;
      if (is_right_) text.resize(left_of_blanks(text, 0, text.size()));
      if (is_left_) text.erase(0, right_of_blanks(text, 0));
    }
  }

 private:
  bool is_left_;
  bool is_right_;
};

class Replace final : public TextStep {
 public:
  explicit Replace(const Json& said) : from_(said.at("from").text()), to_(said.at("to").text()) {
    if (from_.empty()) refuse_bundle({"text_tables.bin replaces nothing: ", said.where()});
  }
  void apply(std::vector<Piece>* pieces) const override {
    for (Piece& piece : *pieces) replace_all(from_, to_, &piece.text);
  }

 private:
  std::string from_;
  std::string to_;
};

// Has each piece, or the first, begin with a text.
class Begin final : public TextStep {
 public:
  explicit Begin(const Json& said)
      : text_(said.at("text").text()),
        is_for_all_(!said.at("first").boolean()),
        is_always_(said.at("always").boolean()) {}
  void apply(std::vector<Piece>* pieces) const override {
    for (Piece& piece : *pieces) {
      const bool has_it = !is_always_ && piece.text.compare(0, text_.size(), text_) == 0;
      if (!has_it && (is_for_all_ || piece.is_first)) piece.text.insert(0, text_);
    }
  }

 private:
  std::string text_;
  bool is_for_all_;
  bool is_always_;
};

// Cuts a text by the matches of an automaton.
class Split final : public TextStep {
 public:
  Split(const TextTables& tables, const Json& said)
      : automaton_(tables, said),
        behavior_(behavior_of(said.at("behavior"))),
        inverts_(said.at("inverts").boolean()) {}

  void apply(std::vector<Piece>* pieces) const override {
    std::vector<Piece> cut;
    for (const Piece& piece : *pieces) {
      for (const Span& span : behave(automaton_.find(piece.text))) {
        cut.push_back({piece.text.substr(span.begin, span.end - span.begin),
                       piece.is_first && span.begin == 0});
      }
    }
    *pieces = std::move(cut);
  }

 private:
  enum class Behavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
  using Span = Automaton::Span;

  static Behavior behavior_of(const Json& said) {
    const std::string& name = said.text();
    if (name == "Isolated") return Behavior::kIsolated;
    if (name == "Removed") return Behavior::kRemoved;
    if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
    if (name == "MergedWithNext") return Behavior::kMergedWithNext;
    if (name == "Contiguous") return Behavior::kContiguous;
    refuse_bundle({"text_tables.bin splits in a way that is not known: ", said.where()});
  }

  [[nodiscard]] std::vector<Span> behave(std::vector<Span> spans) const {
    for (Span& span : spans) span.is_match = span.is_match != inverts_;
    if (behavior_ == Behavior::kIsolated) return spans;
    std::vector<Span> kept;
    for (size_t i = 0; i < spans.size(); ++i) {
      const Span& span = spans[i];
      const bool follows_match = i > 0 && spans[i - 1].is_match;
      const bool is_followed = i + 1 < spans.size();
      if (behavior_ == Behavior::kRemoved) {
        if (!span.is_match) kept.push_back(span);
      } else if (behavior_ == Behavior::kContiguous) {
        if (i > 0 && spans[i - 1].is_match == span.is_match) {
          kept.back().end = span.end;
        } else {
          kept.push_back(span);
        }
      } else if (behavior_ == Behavior::kMergedWithPrevious && span.is_match && i > 0 &&
                 !follows_match) {
        kept.back().end = span.end;
      } else if (behavior_ == Behavior::kMergedWithNext && span.is_match && is_followed &&
                 !spans[i + 1].is_match) {
        spans[i + 1].begin = span.begin;
      } else {
        kept.push_back(span);
      }
    }
    return kept;
  }

  Automaton automaton_;
  Behavior behavior_;
  bool inverts_;
};

std::unique_ptr<TextStep> read_step(const TextTables& tables, const Json& said) {
  const std::string& name = said.at("do").text();
  if (name == "compose") return std::make_unique<Compose>(tables, said);
  if (name == "swap") return std::make_unique<Swap>(tables, said);
  if (name == "map") return std::make_unique<Map>(tables, said);
  if (name == "strip") return std::make_unique<Strip>(said);
  if (name == "replace") return std::make_unique<Replace>(said);
  if (name == "begin") return std::make_unique<Begin>(said);
  if (name == "split") return std::make_unique<Split>(tables, said);
  refuse_bundle({"text_tables.bin has a step that is not known: ", said.at("do").where()});
}

}  // namespace

TextSteps read_steps(const TextTables& tables, const Json& said) {
  TextSteps steps;
  for (const Json& one : said.list()) steps.push_back(read_step(tables, one));
  return steps;
}

void replace_all(std::string_view from, std::string_view to, std::string* text) {
  std::string made;
  size_t rest = 0;
  for (size_t at = text->find(from); at != std::string::npos; at = text->find(from, rest)) {
    made.append(*text, rest, at - rest).append(to);
    rest = at + from.size();
  }
  if (rest != 0) *text = made.append(*text, rest, std::string::npos);
}

}  // namespace adrenoc_runtime
