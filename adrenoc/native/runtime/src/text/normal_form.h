// Unicode's normal forms C and D (Annex 15), by the tables of a bundle.
#pragma once

#include <string>
#include <string_view>

#include "text/text_tables.h"

namespace adrenoc_runtime {

class NormalForm {
 public:
  // Throws Failure (bad bundle) where the tables are none.
  NormalForm(const TextTables& tables, const Json& said);

  // The text in form C, or in form D unless it `composes`.
  [[nodiscard]] std::string compose(std::string_view text, bool composes) const;

 private:
  void decompose(uint32_t point, std::u32string* parts) const;
  [[nodiscard]] uint32_t rank(uint32_t point) const;
  // What two make together; 0 for nothing.
  [[nodiscard]] uint32_t pair(uint32_t first, uint32_t second) const;

  Numbers<uint32_t> points_;
  Numbers<uint32_t> parts_;
  Numbers<uint32_t> starts_;
  Numbers<uint32_t> marked_;
  Numbers<uint32_t> ranks_;
  Numbers<uint32_t> pairs_;
};

}  // namespace adrenoc_runtime
