#include "text/automaton.h"

#include "base/failure.h"
#include "base/utf8.h"

namespace adrenoc_runtime {
namespace {

constexpr size_t kPage = 256;
constexpr uint16_t kAccepts = 1 << 15;

}  // namespace

Automaton::Automaton(const TextTables& tables, const Json& said)
    : columns_(static_cast<size_t>(said.at("columns").count())) {
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

size_t Automaton::match(std::string_view text, size_t at) const {
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

std::vector<Automaton::Span> Automaton::find(std::string_view text) const {
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

}  // namespace adrenoc_runtime
