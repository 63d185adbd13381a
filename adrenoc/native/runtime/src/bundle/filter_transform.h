// Filters as Winograd's algorithm multiplies with them, made in the same bits as the compiler makes
// them: adrenoc/bundle/params.py says how.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "base/json.h"

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

}  // namespace adrenoc_runtime
