// What makes tokens of the pieces of a text.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/text_tables.h"

namespace adrenoc_runtime {

class ModelOfTokens {
 public:
  virtual ~ModelOfTokens() = default;
  // Adds the tokens of a piece.
  virtual void encode(std::string_view piece, std::vector<int64_t>* tokens) const = 0;
};

// `texts` are those of the tokens.  Throws Failure (bad bundle) where the tables are damaged, or name a
// model that is not known.
[[nodiscard]] std::unique_ptr<ModelOfTokens> read_model(const TextTables& tables, const Json& said,
                                                        Texts texts);

}  // namespace adrenoc_runtime
