// Byte-pair encoding: a piece of text begins as its bytes or letters, and pairs become one, the pair
// that was learned first before the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/model_of_tokens.h"
#include "text/sorted_texts.h"

namespace adrenoc_runtime {

class Merger final : public ModelOfTokens {
 public:
  // `texts` are those of the tokens.  Throws Failure (bad bundle) where the tables are damaged.
  Merger(const TextTables& tables, const Json& said, Texts texts);

  void encode(std::string_view piece, std::vector<int64_t>* tokens) const override;

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

  [[nodiscard]] std::optional<Merge> merge_of(uint32_t left, uint32_t right) const;
  [[nodiscard]] std::vector<uint32_t> begin(std::string_view piece) const;

  SortedTexts texts_;
  bool is_bytes_;
  bool takes_whole_;
  bool fuses_;
  uint32_t unknown_;
  Numbers<uint32_t> single_;  // the token of each byte
  Numbers<uint32_t> starts_;  // of the merges of each left token
  Numbers<uint32_t> merges_;  // rows of (right, rank, made), by the right token
};

}  // namespace adrenoc_runtime
