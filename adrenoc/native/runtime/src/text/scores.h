// Unigram: of all tokens that a piece of text may consist of, those whose scores have the best sum.
#pragma once

#include "text/model_of_tokens.h"
#include "text/sorted_texts.h"

namespace adrenoc_runtime {

class Scores final : public ModelOfTokens {
 public:
  Scores(const TextTables& tables, const Json& said, Texts texts);
  void encode(std::string_view piece, std::vector<int64_t>* tokens) const override;

 private:
  // Adds the tokens of letters in a row that are no tokens.
  void encode_unknown(std::string_view letters, std::vector<int64_t>* tokens) const;

  uint32_t unknown_;
  Numbers<uint32_t> single_;  // the token of each byte
  Numbers<double> scores_;  // and behind those of the tokens, that of a letter which is none
  SortedTexts texts_;
};

}  // namespace adrenoc_runtime
