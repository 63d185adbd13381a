// WordPiece: of a word the longest token that it begins with, and so on for what is left.
#pragma once

#include <string>

#include "text/model_of_tokens.h"
#include "text/sorted_texts.h"

namespace adrenoc_runtime {

class WordPieces final : public ModelOfTokens {
 public:
  WordPieces(const TextTables& tables, const Json& said, Texts texts);
  void encode(std::string_view piece, std::vector<int64_t>* tokens) const override;

 private:
  int64_t unknown_;
  std::string continues_;  // what tokens begin with that begin no word
  uint64_t most_letters_;
  SortedTexts texts_;
};

}  // namespace adrenoc_runtime
