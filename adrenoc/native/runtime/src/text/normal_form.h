// Unicode's normal forms C and D (Annex 15), by the tables of a bundle.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>

#include "base/failure.h"
#include "base/utf8.h"
#include "text/text_tables.h"

namespace adrenoc_runtime {

// Text below it is in form C already; in UTF-8 it has no byte from the other on.
constexpr uint32_t kFirstMark = 0x300;
constexpr uint8_t kFirstMarkByte = 0xCC;
// Text of bytes below it is in form D, too.
constexpr uint8_t kFirstDecomposed = 0xC3;
// Syllables of Hangul are computed (chapter 3.12 of the standard).
constexpr uint32_t kSyllables = 0xAC00;
constexpr uint32_t kLeads = 0x1100;
constexpr uint32_t kVowels = 0x1161;
constexpr uint32_t kTails = 0x11A7;
constexpr uint32_t kLeadCount = 19;
constexpr uint32_t kVowelCount = 21;
constexpr uint32_t kTailCount = 28;
constexpr uint32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

class NormalForm {
 public:
  // Throws Failure (bad bundle) where the tables are none.
  NormalForm(const TextTables& tables, const Json& said)
      : points_(tables.numbers<uint32_t>(said.at("points"))),
        parts_(tables.numbers<uint32_t>(said.at("parts"), 0, 0x110000)),
        starts_(tables.starts(said.at("starts"), parts_.count)),
        marked_(tables.numbers<uint32_t>(said.at("marked"))),
        ranks_(tables.numbers<uint32_t>(said.at("ranks"), marked_.count)),
        pairs_(tables.numbers<uint32_t>(said.at("pairs"), 0, 0x110000)) {
    if (starts_.count != points_.count + 1 || pairs_.count % 3 != 0) {
      refuse_bundle("text_tables.bin has no table of a normal form: " + said.where());
    }
  }

  // The text in form C, or in form D unless it `composes`.
  [[nodiscard]] std::string compose(std::string_view text, bool composes) const {
    const uint8_t first = composes ? kFirstMarkByte : kFirstDecomposed;
    const auto is_low = [&](char byte) { return static_cast<uint8_t>(byte) < first; };
    if (std::all_of(text.begin(), text.end(), is_low)) return std::string(text);
    std::u32string parts;
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = code_point_at(text, at);
      at += point.bytes;
      decompose(point.number, &parts);
    }
    // Marks in a row, in the order of their ranks.
    for (auto begin = parts.begin(); begin != parts.end();) {
      if (rank(*begin) == 0) {
        ++begin;
        continue;
      }
      const auto end = std::find_if(begin, parts.end(), [&](char32_t p) { return rank(p) == 0; });
      std::stable_sort(begin, end, [&](char32_t a, char32_t b) { return rank(a) < rank(b); });
      begin = end;
    }
    std::u32string made;
    size_t starter = std::u32string::npos;
    uint32_t last = 0;  // the rank of what was kept last behind the starter
    for (const char32_t point : parts) {
      const uint32_t own = rank(point);
      if (!composes) starter = std::u32string::npos;
      const bool is_next = starter != std::u32string::npos && made.size() == starter + 1;
      if (starter != std::u32string::npos && (is_next || (last != 0 && last < own))) {
        if (const uint32_t together = pair(made[starter], point)) {
          made[starter] = together;
          continue;
        }
      }
      if (own == 0) starter = made.size();
      last = own;
      made.push_back(point);
    }
    std::string composed;
    for (const char32_t point : made) append_utf8(point, &composed);
    return composed;
  }

 private:
  void decompose(uint32_t point, std::u32string* parts) const {
    const uint32_t syllable = point - kSyllables;
    if (syllable < kSyllableCount) {
      parts->push_back(kLeads + syllable / (kVowelCount * kTailCount));
      parts->push_back(kVowels + syllable / kTailCount % kVowelCount);
      if (syllable % kTailCount != 0) parts->push_back(kTails + syllable % kTailCount);
      return;
    }
    const uint32_t* end = points_.data + points_.count;
    const uint32_t* found = std::lower_bound(points_.data, end, point);
    if (found == end || *found != point) {
      parts->push_back(point);
      return;
    }
    const size_t at = found - points_.data;
    parts->append(parts_.data + starts_[at], parts_.data + starts_[at + 1]);
  }
  [[nodiscard]] uint32_t rank(uint32_t point) const {
    if (point < kFirstMark) return 0;
    const uint32_t* end = marked_.data + marked_.count;
    const uint32_t* found = std::lower_bound(marked_.data, end, point);
    return found == end || *found != point ? 0 : ranks_[found - marked_.data];
  }
  // What two make together; 0 for nothing.
  [[nodiscard]] uint32_t pair(uint32_t first, uint32_t second) const {
    if (first - kLeads < kLeadCount && second - kVowels < kVowelCount) {
      return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
    }
    if (first - kSyllables < kSyllableCount && (first - kSyllables) % kTailCount == 0 &&
        second - kTails - 1 < kTailCount - 1) {
      return first + (second - kTails);
    }
    size_t low = 0;
    size_t high = pairs_.count / 3;
    const auto wanted = std::make_tuple(first, second);
    while (low < high) {
      const size_t at = (low + high) / 2;
      if (std::make_tuple(pairs_[3 * at], pairs_[3 * at + 1]) < wanted) {
        low = at + 1;
      } else {
        high = at;
      }
    }
    const bool is_there =
        3 * low < pairs_.count && pairs_[3 * low] == first && pairs_[3 * low + 1] == second;
    return is_there ? pairs_[3 * low + 2] : 0;
  }

  Numbers<uint32_t> points_;
  Numbers<uint32_t> parts_;
  Numbers<uint32_t> starts_;
  Numbers<uint32_t> marked_;
  Numbers<uint32_t> ranks_;
  Numbers<uint32_t> pairs_;
};

}  // namespace adrenoc_runtime
