#include "text/steps.h"

#include <utility>

#include "base/failure.h"
#include "text/normal_form.h"
#include "base/utf8.h"

namespace adrenoc_runtime {
namespace {

class Compose final : public TextStep {
 public:
  Compose(const TextTables& tables, const Json& said) : form_(tables, said) {}
  void apply(std::vector<Piece>* pieces) const override {
    for (Piece& piece : *pieces) piece.text = form_.compose(piece.text);
  }

 private:
  NormalForm form_;
};

class Replace final : public TextStep {
 public:
  explicit Replace(const Json& said) : from_(said.at("from").text()), to_(said.at("to").text()) {
    if (from_.empty()) refuse_bundle("text_tables.bin replaces nothing: " + said.where());
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

// Cuts a text by the matches of an automaton (adrenoc/language/pattern.py).
class Split final : public TextStep {
 public:
  Split(const TextTables& tables, const Json& said)
      : behavior_(behavior_of(said.at("behavior"))), inverts_(said.at("inverts").boolean()) {
    columns_ = said.at("columns").count();
    if (columns_ < 2) refuse_bundle("text_tables.bin has no automaton: " + said.where());
    classes_ = tables.numbers<uint8_t>(said.at("classes"), 0, columns_ - 1);
    pages_ = tables.numbers<uint16_t>(said.at("pages"), 0x110000 / kPage, classes_.count / kPage);
    steps_ = tables.numbers<uint16_t>(said.at("steps"));
    const size_t states = steps_.count / columns_;
    bool is_whole = steps_.count == states * columns_ && states >= 2;
    for (size_t i = 0; i < steps_.count; ++i) {
      is_whole = is_whole && (steps_[i] & ~kAccepts) < states;
    }
    if (!is_whole) refuse_bundle("text_tables.bin has a damaged automaton: " + said.where());
  }

  void apply(std::vector<Piece>* pieces) const override {
    std::vector<Piece> cut;
    for (const Piece& piece : *pieces) {
      for (const Span& span : behave(find(piece.text))) {
        cut.push_back({piece.text.substr(span.begin, span.end - span.begin),
                       piece.is_first && span.begin == 0});
      }
    }
    *pieces = std::move(cut);
  }

 private:
  enum class Behavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct Span {
    size_t begin;
    size_t end;
    bool is_match;
  };
  static constexpr size_t kPage = 256;
  static constexpr uint16_t kAccepts = 1 << 15;

  static Behavior behavior_of(const Json& said) {
    const std::string& name = said.text();
    if (name == "Isolated") return Behavior::kIsolated;
    if (name == "Removed") return Behavior::kRemoved;
    if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
    if (name == "MergedWithNext") return Behavior::kMergedWithNext;
    if (name == "Contiguous") return Behavior::kContiguous;
    refuse_bundle("text_tables.bin splits in a way that is not known: " + said.where());
  }

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

  // The matches of a text, and what is between them.
  [[nodiscard]] std::vector<Span> find(std::string_view text) const {
    std::vector<Span> spans;
    size_t rest = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t end = match(text, at);
      if (end == at) {
        at += code_point_at(text, at).bytes;
        continue;
      }
      if (rest < at) spans.push_back({rest, at, inverts_});
      spans.push_back({at, end, !inverts_});
      rest = at = end;
    }
    if (rest < text.size()) spans.push_back({rest, text.size(), inverts_});
    return spans;
  }

  [[nodiscard]] std::vector<Span> behave(std::vector<Span> spans) const {
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

  Behavior behavior_;
  bool inverts_;
  size_t columns_ = 0;
  Numbers<uint16_t> pages_;
  Numbers<uint8_t> classes_;
  Numbers<uint16_t> steps_;
};

std::unique_ptr<TextStep> read_step(const TextTables& tables, const Json& said) {
  const std::string& name = said.at("do").text();
  if (name == "compose") return std::make_unique<Compose>(tables, said);
  if (name == "replace") return std::make_unique<Replace>(said);
  if (name == "begin") return std::make_unique<Begin>(said);
  if (name == "split") return std::make_unique<Split>(tables, said);
  refuse_bundle("text_tables.bin has a step that is not known: " + said.at("do").where());
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
