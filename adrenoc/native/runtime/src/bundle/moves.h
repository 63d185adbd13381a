// Constants that a bundle does not hold, because it holds what they are made of in another order.
// adrenoc/bundle/params.py writes them, and says how.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "files/safetensors.h"

namespace adrenoc_runtime {

constexpr size_t kMostSide = 8;
using Square = std::array<std::array<double, kMostSide>, kMostSide>;

// G w G^T of filters w: row i of G is `rows[i]` over `divisors[i]`.
struct FilterTransform {
  std::vector<std::vector<double>> rows;
  std::vector<double> divisors;

  [[nodiscard]] size_t taps() const { return rows.front().size(); }
  [[nodiscard]] size_t side() const { return rows.size(); }

  // Of taps x taps numbers side x side ones.
  void apply(const Square& filter, Square* made) const;
};

// Throws Failure (bad bundle) where it is of no filters, or of too large ones.
[[nodiscard]] FilterTransform read_transform(const Json& json);

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
// With a transform the last two axes are those of filters, of floats or halves; `places` are of
// what becomes of them, in so many `made_counts`.
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
