#include "text/scores.h"

#include <algorithm>

#include "base/failure.h"
#include "base/utf8.h"

namespace adrenoc_runtime {

Scores::Scores(const TextTables& tables, const Json& said, Texts texts)
    : unknown_(static_cast<uint32_t>(said.at("unknown").count())),
      single_(tables.numbers<uint32_t>(said.at("single"), 256)),
      scores_(tables.numbers<double>(said.at("scores"))),
      texts_(texts, tables.numbers<uint32_t>(said.at("order"), 0, scores_.count - 1)) {
  if (scores_.count - 1 > texts.count() || unknown_ >= scores_.count) {
    refuse_bundle("text_tables.bin has not a score a token: " + said.where());
  }
}

void Scores::encode(std::string_view piece, std::vector<int64_t>* tokens) const {
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

void Scores::encode_unknown(std::string_view letters, std::vector<int64_t>* tokens) const {
  const auto of_byte = [&](char byte) { return single_[static_cast<uint8_t>(byte)]; };
  const uint32_t whole = texts_.find(letters);
  if (whole == kNoText && std::all_of(letters.begin(), letters.end(),
                                      [&](char byte) { return of_byte(byte) != kNoText; })) {
    for (const char byte : letters) tokens->push_back(of_byte(byte));
  } else {
    tokens->push_back(whole == kNoText ? unknown_ : whole);
  }
}

}  // namespace adrenoc_runtime
