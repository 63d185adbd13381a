#include "text/sorted_texts.h"

namespace adrenoc_runtime {

std::vector<SortedTexts::Found> SortedTexts::beginnings(std::string_view rest) const {
  std::vector<Found> found;
  size_t low = 0;
  size_t high = order_.data == nullptr ? texts_.count() : order_.count;
  // Those that begin as the text does, a letter more each time.
  for (size_t length = 0; length < rest.size() && low < high; ++length) {
    const auto letter = static_cast<uint8_t>(rest[length]);
    const auto bound = [&](uint32_t least) {
      size_t from = low;
      size_t to = high;
      while (from < to) {
        const size_t at = (from + to) / 2;
        const std::string_view text = texts_[number(at)];
        const bool is_less = text.size() <= length || static_cast<uint8_t>(text[length]) < least;
        (is_less ? from : to) = is_less ? at + 1 : at;
      }
      return from;
    };
    const size_t end = bound(letter + 1u);
    low = bound(letter);
    high = end;
    if (low < high && texts_[number(low)].size() == length + 1) {
      found.push_back({number(low), length + 1});
    }
  }
  return found;
}

uint32_t SortedTexts::find(std::string_view text) const {
  const std::vector<Found> found = beginnings(text);
  return found.empty() || found.back().bytes != text.size() ? kNoText : found.back().number;
}

}  // namespace adrenoc_runtime
