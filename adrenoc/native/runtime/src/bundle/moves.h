// Constants that a bundle does not hold, because it holds what they are made of in another order.
// adrenoc/bundle/params.py writes them, and says how.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/failure.h"
#include "base/half.h"
#include "base/json.h"
#include "bundle/manifest.h"
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
  void apply(const Square& filter, Square* made) const {
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
};

constexpr int64_t kMostFactor = 1 << 16;

inline double read_factor(const Json& json, int64_t least) {
  const int64_t number = json.integer();
  if (number < least || number > kMostFactor) {
    refuse_bundle({json.where(), " is beyond what filters take"});
  }
  return static_cast<double>(number);
}

inline std::vector<double> read_factors(const Json& json, int64_t least) {
  std::vector<double> factors;
  for (const Json& one : json.list()) factors.push_back(read_factor(one, least));
  if (factors.empty() || factors.size() > kMostSide) {
    refuse_bundle({json.where(), " has ", factors.size(), " numbers"});
  }
  return factors;
}

// Throws Failure (bad bundle) where it is of no filters, or of too large ones.
[[nodiscard]] inline FilterTransform read_transform(const Json& json) {
  FilterTransform transform;
  const Json& rows = json.at("rows");
  for (const Json& row : rows.list()) transform.rows.push_back(read_factors(row, -kMostFactor));
  transform.divisors = read_factors(json.at("divisors"), 1);
  if (transform.rows.empty() || transform.rows.size() != transform.divisors.size()) {
    refuse_bundle({rows.where(), " is of another number of rows than its divisors"});
  }
  for (const std::vector<double>& row : transform.rows) {
    if (row.size() != transform.taps()) refuse_bundle({rows.where(), " is no matrix"});
  }
  return transform;
}

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

constexpr const char* kMovesFile = "moves.json";
constexpr size_t kMostAxes = 8;
constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

inline int64_t bounded(const Json& json) {
  const int64_t number = json.integer();
  if (number < -kMost || number > kMost)
    refuse_bundle({json.where(), " is beyond what memory holds"});
  return number;
}

constexpr size_t kMostDigits = 8;

inline std::vector<Digit> read_digits(const Json& json) {
  std::vector<Digit> digits;
  for (const Json& digit : json.list()) {
    if (digit.list().size() != 2) refuse_bundle({digit.where(), " is no radix and stride"});
    const int64_t radix = bounded(digit.list()[0]);
    if (radix < 1) refuse_bundle({digit.where(), " is no radix and stride"});
    digits.push_back({radix, bounded(digit.list()[1])});
  }
  if (digits.empty() || digits.size() > kMostDigits) {
    refuse_bundle({json.where(), " has ", digits.size(), " digits"});
  }
  return digits;
}

inline Places read_places(const Json& json, size_t axes) {
  Places places{bounded(json.at("first")), {}};
  for (const Json& digits : json.at("digits").list()) places.axes.push_back(read_digits(digits));
  if (places.axes.size() != axes) refuse_bundle({json.where(), " is of another number of axes"});
  return places;
}

inline std::vector<int64_t> read_extents(const Json& json) {
  std::vector<int64_t> extents;
  int64_t product = 1;
  for (const Json& one : json.list()) {
    const int64_t extent = bounded(one);
    if (extent < 0) refuse_bundle({one.where(), " is negative"});
    // Both are below 2^31: no product of the two can pass 64 bits.
    product = extent == 0 ? 0 : product * extent;
    if (product > kMost) refuse_bundle({json.where(), " holds more than memory does"});
    extents.push_back(extent);
  }
  return extents;
}

// The transform of the last two axes, if there is one, and what then becomes of their counts.
inline void read_filters(const Json& json, Move* move) {
  move->made_counts = move->counts;
  if (json.is_null()) return;
  move->transform = read_transform(json);
  const auto taps = static_cast<int64_t>(move->transform->taps());
  const size_t axes = move->counts.size();
  const bool is_filters = axes >= 2 && move->counts[axes - 2] == taps &&
                          move->counts[axes - 1] == taps && (move->width == 2 || move->width == 4);
  if (!is_filters) refuse_bundle({json.where(), " is of no filter"});
  const auto side = static_cast<int64_t>(move->transform->side());
  move->made_counts[axes - 2] = move->made_counts[axes - 1] = side;
}

inline Move read_move(const Json& json) {
  Move move;
  move.dtype = json.at("dtype").text();
  check_word(move.dtype, json.at("dtype").where());
  move.shape = read_extents(json.at("shape"));
  move.source = json.at("source").text();
  move.width = json.at("width").count();
  move.counts = read_extents(json.at("counts"));
  if (move.counts.empty() || move.counts.size() > kMostAxes) {
    refuse_bundle({json.at("counts").where(), " is of no or too many axes"});
  }
  read_filters(json.at("transform"), &move);
  move.places = read_places(json.at("places"), move.counts.size());
  move.source_places = read_places(json.at("source_places"), move.counts.size());
  return move;
}

// Reads moves.json, by the constant that each makes.  Throws Failure (bad bundle).
[[nodiscard]] inline std::map<std::string, Move> read_moves(std::string_view text) {
  const Json json = Json::parse(text, kMovesFile);
  std::map<std::string, Move> moves;
  for (const Json& entry : json.at("moves").list()) {
    moves.insert_or_assign(entry.at("name").text(), read_move(entry));
  }
  return moves;
}

using Lines = std::vector<std::vector<int64_t>>;

// How far each index along an axis is from the first.
inline std::vector<int64_t> find_line(const std::vector<Digit>& digits, int64_t count) {
  std::vector<int64_t> line(static_cast<size_t>(count));
  for (int64_t index = 0; index < count; ++index) {
    int64_t left = index;
    for (const Digit& digit : digits) {
      line[static_cast<size_t>(index)] += left % digit.radix * digit.stride;
      left /= digit.radix;
    }
  }
  return line;
}

// The lines along all axes, if no place of theirs lies outside of `elements`.
inline Lines find_lines(const Places& places, const std::vector<int64_t>& counts, uint64_t elements,
                        const std::string& name) {
  Lines lines;
  int64_t least = places.first;
  int64_t most = places.first;
  for (size_t axis = 0; axis < counts.size(); ++axis) {
    lines.push_back(find_line(places.axes[axis], counts[axis]));
    const auto ends = std::minmax_element(lines.back().begin(), lines.back().end());
    if (ends.first == lines.back().end()) continue;
    least += *ends.first;
    most += *ends.second;
  }
  if (least < 0 || static_cast<uint64_t>(most) >= elements) {
    refuse_bundle({kMovesFile, ": ", name, " lies outside of its constant"});
  }
  return lines;
}

inline double number_of(float element) { return element; }

inline double number_of(uint16_t bits) { return adrenoc_runtime::number_of(Half{bits}); }

inline void round_to(float* element, double number) { *element = static_cast<float>(number); }

inline void round_to(uint16_t* bits, double number) { *bits = nearest_half(number).bits; }

template <typename Element>
struct Mover {
  const FilterTransform* transform;  // of filters on the last two axes, on their way, or null
  const Lines& to_lines;
  const Lines& from_lines;
  Element* to;
  const Element* from;

  void move(size_t axis, int64_t to_place, int64_t from_place) const {
    const std::vector<int64_t>& own = to_lines[axis];
    const std::vector<int64_t>& other = from_lines[axis];
    if constexpr (std::is_same_v<Element, float> || std::is_same_v<Element, uint16_t>) {
      if (transform != nullptr && axis + 2 == to_lines.size()) {
        return move_filter(axis, to_place, from_place);
      }
    }
    if (axis + 1 == to_lines.size()) {
      for (size_t i = 0; i < own.size(); ++i) to[to_place + own[i]] = from[from_place + other[i]];
      return;
    }
    for (size_t i = 0; i < own.size(); ++i) {
      move(axis + 1, to_place + own[i], from_place + other[i]);
    }
  }

  void move_filter(size_t axis, int64_t to_place, int64_t from_place) const {
    Square filter;
    Square made;
    for (size_t i = 0; i < from_lines[axis].size(); ++i) {
      for (size_t j = 0; j < from_lines[axis + 1].size(); ++j) {
        filter[i][j] = number_of(from[from_place + from_lines[axis][i] + from_lines[axis + 1][j]]);
      }
    }
    transform->apply(filter, &made);
    for (size_t i = 0; i < to_lines[axis].size(); ++i) {
      for (size_t j = 0; j < to_lines[axis + 1].size(); ++j) {
        round_to(&to[to_place + to_lines[axis][i] + to_lines[axis + 1][j]], made[i][j]);
      }
    }
  }
};

template <typename Element>
void move_elements(const Move& move, const Lines& to_lines, const Lines& from_lines,
                   std::string_view from, std::vector<char>* to) {
  const Mover<Element> mover{move.transform.has_value() ? &*move.transform : nullptr, to_lines,
                             from_lines, reinterpret_cast<Element*>(to->data()),
                             reinterpret_cast<const Element*>(from.data())};
  mover.move(0, move.places.first, move.source_places.first);
}

inline int64_t count_all(const std::vector<int64_t>& counts) {
  int64_t all = 1;
  for (const int64_t count : counts) all *= count;
  return all;
}

// The bytes of the constant; what no element lies at is zero.  Throws Failure (bad bundle) where a
// place lies outside of one of the two.
[[nodiscard]] inline std::vector<char> bring(const Move& move, const StoredTensor& source,
                                             const std::string& name) {
  std::vector<char> made(tensor_bytes(move.dtype, move.shape, name));
  const uint64_t width = move.width;
  const bool is_known = width == 1 || width == 2 || width == 4;
  if (!is_known || made.size() % width != 0 || source.data.size() % width != 0) {
    refuse_bundle({kMovesFile, ": ", name, " has elements of ", width, " bytes"});
  }
  const int64_t count = count_all(move.made_counts);
  if (count == 0 || count_all(move.counts) == 0) return made;
  if (static_cast<uint64_t>(count) > made.size() / width) {
    refuse_bundle({kMovesFile, ": ", name, " has more elements than there are"});
  }
  const Lines to = find_lines(move.places, move.made_counts, made.size() / width, name);
  const Lines from = find_lines(move.source_places, move.counts, source.data.size() / width, name);
  // Constants lie where their file says: a driver's memory and this one's are aligned, a file's
  // content need not be.
  const bool is_aligned = reinterpret_cast<uintptr_t>(source.data.data()) % width == 0;
  const std::string copy(is_aligned ? std::string_view() : source.data);
  const std::string_view data = is_aligned ? source.data : std::string_view(copy);
  // read_filters() has seen to it that a transform is of elements of two or four bytes.
  if (width == 1) move_elements<uint8_t>(move, to, from, data, &made);
  if (width == 2) move_elements<uint16_t>(move, to, from, data, &made);
  const bool is_float = move.transform.has_value();  // else the bits of whatever it is
  if (width == 4 && is_float) move_elements<float>(move, to, from, data, &made);
  if (width == 4 && !is_float) move_elements<uint32_t>(move, to, from, data, &made);
  return made;
}

}  // namespace adrenoc_runtime
