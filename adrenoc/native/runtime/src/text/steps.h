// What happens to a text before a model's tokens are made of it, in steps: it is changed, and cut into
// pieces (adrenoc/language/tables.py has what they are).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_tables.h"

namespace adrenoc_runtime {

// A part of a text; `is_first` of that which the whole text begins with.
struct Piece {
  std::string text;
  bool is_first;
};

class TextStep {
 public:
  virtual ~TextStep() = default;
  // Changes pieces, or puts more in their place; none of them is empty.
  virtual void apply(std::vector<Piece>* pieces) const = 0;
};

using TextSteps = std::vector<std::unique_ptr<TextStep>>;

// Throws Failure (bad bundle) where the tables are damaged, or name a step that is not known.
[[nodiscard]] TextSteps read_steps(const TextTables& tables, const Json& said);

// Puts one text in place of another, wherever that is.
void replace_all(std::string_view from, std::string_view to, std::string* text);

}  // namespace adrenoc_runtime
