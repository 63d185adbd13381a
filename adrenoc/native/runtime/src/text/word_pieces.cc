#include "text/word_pieces.h"

#include "base/utf8.h"

namespace adrenoc_runtime {

WordPieces::WordPieces(const TextTables& tables, const Json& said, Texts texts)
    : unknown_(said.at("unknown").integer()),
      continues_(said.at("continues").text()),
      most_letters_(said.at("most_letters").count()),
      texts_(texts, tables.numbers<uint32_t>(said.at("order"), 0, texts.count())) {}

void WordPieces::encode(std::string_view piece, std::vector<int64_t>* tokens) const {
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

}  // namespace adrenoc_runtime
