// Constants that a bundle does not hold, because it holds what they are made of in another order.
// adrenoc/bundle/params.py writes them, and says how.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bundle/filter_transform.h"
#include "files/safetensors.h"

namespace adrenoc_runtime {

// An index is taken apart into digits of these radices, each of which moves by a stride.
struct Digit {
  int64_t radix;
  int64_t stride;
};

// Where elements lie: the first, and how far each index along an axis is from it.
struct Places {
  int64_t first;
  std::vector<std::vector<Digit>> axes;
};

// A constant of this form out of the elements of `source`, in so many `counts` along each axis.
// With a transform the last two axes are those of filters, of floats or halves; `places` are of what
// becomes of them, in so many `made_counts`.
struct Move {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string source;
  uint64_t width;  // bytes of an element
  std::optional<FilterTransform> transform;
  std::vector<int64_t> counts;
  std::vector<int64_t> made_counts;
  Places places;
  Places source_places;
};

// Reads moves.json, by the constant that each makes.  Throws Failure (bad bundle).
[[nodiscard]] std::map<std::string, Move> read_moves(std::string_view text);

// The bytes of the constant; what no element lies at is zero.  Throws Failure (bad bundle) where a
// place lies outside of one of the two.
[[nodiscard]] std::vector<char> bring(const Move& move, const StoredTensor& source,
                                      const std::string& name);

}  // namespace adrenoc_runtime
