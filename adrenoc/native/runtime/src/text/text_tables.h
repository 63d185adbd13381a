// The file text_tables.bin of a bundle, which adrenoc/language/tables.py made of a tokenizer.json:
// steps in which texts are changed and cut into pieces, and what makes tokens of the pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace adrenoc_runtime {

// Numbers of the file, as they lie there.
template <typename Number>
struct Numbers {
  const Number* data = nullptr;
  size_t count = 0;

  Number operator[](size_t at) const { return data[at]; }
};

// The first place from `low` on, up to `high`, that is not `less`, as those before it are.
template <typename Less>
size_t first_not(size_t low, size_t high, Less less) {
  while (low < high) {
    const size_t at = (low + high) / 2;
    if (less(at)) {
      low = at + 1;
    } else {
      high = at;
    }
  }
  return low;
}

// Texts of the file, one behind the other.
struct Texts {
  Numbers<uint32_t> starts;
  Numbers<char> bytes;

  [[nodiscard]] size_t count() const { return starts.count - 1; }
  [[nodiscard]] std::string_view operator[](size_t at) const {
    return {bytes.data + starts[at], starts[at + 1] - starts[at]};
  }
};

// The memory of the file, and the object before its arrays.
class TextTables {
 public:
  // Throws Failure (bad bundle) where it is no such file.
  explicit TextTables(std::string_view content);
  TextTables(const TextTables&) = delete;
  TextTables& operator=(const TextTables&) = delete;

  [[nodiscard]] const Json& header() const { return *header_; }
  // The array of a place that the header names, of `count` numbers unless that is 0.  Throws
  // Failure (bad bundle) where there is none, or a number is `below` or more.
  template <typename Number>
  [[nodiscard]] Numbers<Number> numbers(const Json& place, size_t count = 0,
                                        uint64_t below = UINT64_MAX) const;
  // Where things begin in an array of `end` elements: ascending.
  [[nodiscard]] Numbers<uint32_t> starts(const Json& place, size_t end) const;
  [[nodiscard]] Texts texts(const Json& place) const;

 private:
  std::vector<uint64_t> memory_;
  std::vector<Json> parsed_;  // one
  const Json* header_ = nullptr;
  size_t begin_ = 0;  // of the arrays, in bytes
  size_t bytes_ = 0;
};

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

class ModelOfTokens {
 public:
  virtual ~ModelOfTokens() = default;
  // Adds the tokens of a piece.
  virtual void encode(std::string_view piece, std::vector<int64_t>* tokens) const = 0;
};

// `texts` are those of the tokens.  Throws Failure (bad bundle) where the tables are damaged, or
// name a model that is not known.
[[nodiscard]] std::unique_ptr<ModelOfTokens> read_model(const TextTables& tables, const Json& said,
                                                        Texts texts);

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
