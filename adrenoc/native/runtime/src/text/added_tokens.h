// Tokens that are found in a text before all else, such as "<|im_end|>".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "text/sorted_texts.h"

namespace adrenoc_runtime {

class AddedTokens {
 public:
  // `tokens` is how many there are.  Throws Failure (bad bundle) where the tables are damaged.
  AddedTokens(const TextTables& tables, const Json& said, size_t tokens);

  // Tells what a text consists of, from left to right: text, and tokens of those that are looked for in
  // text that was normalized, or of the others.  Of two that begin at a place the longer is found.
  using OnText = std::function<void(size_t begin, size_t end)>;
  using OnToken = std::function<void(uint32_t token)>;
  void find(std::string_view text, bool is_normalized, const OnText& on_text,
            const OnToken& on_token) const;

 private:
  Texts contents_;  // ascending
  SortedTexts sorted_;
  Numbers<uint32_t> ids_;
  Numbers<uint8_t> flags_;
};

}  // namespace adrenoc_runtime
