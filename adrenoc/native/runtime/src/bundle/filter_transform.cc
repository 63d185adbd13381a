#include "bundle/filter_transform.h"

#include <string>

#include "base/failure.h"

namespace adrenoc_runtime {
namespace {

constexpr int64_t kMostFactor = 1 << 16;

double read_factor(const Json& json, int64_t least) {
  const int64_t number = json.integer();
  if (number < least || number > kMostFactor) {
    refuse_bundle(json.where() + " is beyond what filters take");
  }
  return static_cast<double>(number);
}

std::vector<double> read_factors(const Json& json, int64_t least) {
  std::vector<double> factors;
  for (const Json& one : json.list()) factors.push_back(read_factor(one, least));
  if (factors.empty() || factors.size() > kMostSide) {
    refuse_bundle(json.where() + " has " + std::to_string(factors.size()) + " numbers");
  }
  return factors;
}

}  // namespace

void FilterTransform::apply(const Square& filter, Square* made) const {
  Square down;
  const size_t sides = side();
  const size_t all = taps();
  // Products are exact, so that a compiler may join them with the sums.
  for (size_t i = 0; i < sides; ++i) {
    for (size_t column = 0; column < all; ++column) {
      double sum = rows[i][0] * filter[0][column];
      for (size_t k = 1; k < all; ++k) sum += rows[i][k] * filter[k][column];
      down[i][column] = sum;
    }
  }
  for (size_t i = 0; i < sides; ++i) {
    for (size_t j = 0; j < sides; ++j) {
      double sum = rows[j][0] * down[i][0];
      for (size_t k = 1; k < all; ++k) sum += rows[j][k] * down[i][k];
      (*made)[i][j] = sum / (divisors[i] * divisors[j]);
    }
  }
}

FilterTransform read_transform(const Json& json) {
  FilterTransform transform;
  const Json& rows = json.at("rows");
  for (const Json& row : rows.list()) transform.rows.push_back(read_factors(row, -kMostFactor));
  transform.divisors = read_factors(json.at("divisors"), 1);
  if (transform.rows.empty() || transform.rows.size() != transform.divisors.size()) {
    refuse_bundle(rows.where() + " is of another number of rows than its divisors");
  }
  for (const std::vector<double>& row : transform.rows) {
    if (row.size() != transform.taps()) refuse_bundle(rows.where() + " is no matrix");
  }
  return transform;
}

}  // namespace adrenoc_runtime
