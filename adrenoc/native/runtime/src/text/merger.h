// Byte-pair encoding: a piece of text begins as its bytes or letters, and pairs become one, the pair
// that was learned first before the others.
#ifndef ADRENOC_RUNTIME_TEXT_MERGER_H_
#define ADRENOC_RUNTIME_TEXT_MERGER_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/text_tables.h"

namespace adrenoc_runtime {

class Merger {
 public:
  // `texts` are those of the tokens.  Throws Failure (bad bundle) where the tables are damaged.
  Merger(const TextTables& tables, const Json& said, Texts texts);

  // Adds the tokens of a piece.
  void encode(std::string_view piece, std::vector<int64_t>* tokens) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
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

  // The token of a whole text; kNone where it is none.
  [[nodiscard]] uint32_t token_of(std::string_view text) const;
  [[nodiscard]] std::optional<Merge> merge_of(uint32_t left, uint32_t right) const;
  [[nodiscard]] std::vector<uint32_t> begin(std::string_view piece) const;

  Texts texts_;
  bool is_bytes_;
  bool takes_whole_;
  bool fuses_;
  uint32_t unknown_;
  Numbers<uint32_t> single_;  // the token of each byte
  Numbers<uint32_t> order_;   // tokens in the order of their texts
  Numbers<uint32_t> starts_;  // of the merges of each left token
  Numbers<uint32_t> merges_;  // rows of (right, rank, made), by the right token
};

}  // namespace adrenoc_runtime

#endif  // ADRENOC_RUNTIME_TEXT_MERGER_H_
