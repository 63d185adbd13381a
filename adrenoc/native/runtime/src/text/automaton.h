// Automata that find what a pattern matches in a text (adrenoc/language/pattern.py).
#pragma once

#include <string_view>
#include <vector>

#include "text/text_tables.h"

namespace adrenoc_runtime {

class Automaton {
 public:
  struct Span {
    size_t begin;
    size_t end;
    bool is_match;
  };

  // Throws Failure (bad bundle) where the tables are damaged.
  Automaton(const TextTables& tables, const Json& said);

  // The matches of a text from left to right, and what is between them.
  [[nodiscard]] std::vector<Span> find(std::string_view text) const;

 private:
  // Where the match ends that begins at `at`; `at` where none does.
  [[nodiscard]] size_t match(std::string_view text, size_t at) const;

  size_t columns_;
  Numbers<uint16_t> pages_;
  Numbers<uint8_t> classes_;
  Numbers<uint16_t> steps_;
};

}  // namespace adrenoc_runtime
