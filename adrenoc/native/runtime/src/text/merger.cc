#include "text/merger.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <queue>
#include <tuple>

#include "base/failure.h"
#include "base/utf8.h"

namespace adrenoc_runtime {

Merger::Merger(const TextTables& tables, const Json& said, Texts texts)
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
  if (!is_whole) refuse_bundle("text_tables.bin has damaged merges: " + said.where());
}

std::optional<Merger::Merge> Merger::merge_of(uint32_t left, uint32_t right) const {
  size_t low = starts_[left];
  size_t high = starts_[left + 1];
  while (low < high) {
    const size_t at = (low + high) / 2;
    if (merges_[3 * at] < right) {
      low = at + 1;
    } else {
      high = at;
    }
  }
  if (low == starts_[left + 1] || merges_[3 * low] != right) return std::nullopt;
  return Merge{merges_[3 * low + 1], merges_[3 * low + 2]};
}

std::vector<uint32_t> Merger::begin(std::string_view piece) const {
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

void Merger::encode(std::string_view piece, std::vector<int64_t>* tokens) const {
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
  for (size_t at = 0; at < symbols.size(); at = symbols[at].next == at ? symbols.size() : symbols[at].next) {
    tokens->push_back(symbols[at].token);
  }
}

}  // namespace adrenoc_runtime
