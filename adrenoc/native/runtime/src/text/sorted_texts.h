// Texts in ascending order, of which those are found that another one begins with.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/text_tables.h"

namespace adrenoc_runtime {

// The number of no text.
constexpr uint32_t kNoText = UINT32_MAX;

class SortedTexts {
 public:
  struct Found {
    uint32_t number;  // of the text
    size_t bytes;
  };

  // They ascend as they lie there, or as `order` has their numbers.
  explicit SortedTexts(Texts texts, Numbers<uint32_t> order = {}) : texts_(texts), order_(order) {}

  // Those that `rest` begins with, the shortest first; none is empty.
  [[nodiscard]] std::vector<Found> beginnings(std::string_view rest) const;
  // The number of a text; kNoText where it is none of these.
  [[nodiscard]] uint32_t find(std::string_view text) const;

 private:
  [[nodiscard]] uint32_t number(size_t at) const {
    return order_.data == nullptr ? static_cast<uint32_t>(at) : order_[at];
  }

  Texts texts_;
  Numbers<uint32_t> order_;
};

}  // namespace adrenoc_runtime
