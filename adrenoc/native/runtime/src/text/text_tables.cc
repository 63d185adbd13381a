#include "text/text_tables.h"

#include <algorithm>

#include "base/failure.h"

namespace adrenoc_runtime {
namespace {

constexpr std::string_view kTablesName = "text_tables.bin";
constexpr std::string_view kTablesMagic = "adrtext2";
constexpr size_t kTablesHeaderAt = 16;

[[noreturn]] void refuse_tables(const std::string& what) { refuse_bundle(std::string(kTablesName) + " " + what); }

}  // namespace

TextTables::TextTables(std::string_view content)
    : memory_((content.size() + 7) / 8), bytes_(content.size()) {
  auto* data = reinterpret_cast<char*>(memory_.data());
  std::copy(content.begin(), content.end(), data);
  if (content.size() < kTablesHeaderAt || content.substr(0, kTablesMagic.size()) != kTablesMagic) {
    refuse_tables("has not the form that this runtime reads");
  }
  if (memory_[1] > bytes_ - kTablesHeaderAt || memory_[1] % 8 != 0) refuse_tables("is cut off");
  const auto header = static_cast<size_t>(memory_[1]);
  begin_ = kTablesHeaderAt + header;
  parsed_.push_back(Json::parse({data + kTablesHeaderAt, header}, std::string(kTablesName)));
  header_ = parsed_.data();
}

template <typename Number>
Numbers<Number> TextTables::numbers(const Json& place, size_t count, uint64_t below) const {
  const uint64_t at = place.at("at").count();
  const uint64_t held = place.at("count").count();
  const size_t room = bytes_ - begin_;
  if (place.at("bytes").count() != sizeof(Number) || at % 8 != 0 || at > room ||
      held > (room - at) / sizeof(Number) || (count != 0 && held != count)) {
    refuse_tables("has no such array: " + place.where());
  }
  const auto* data = reinterpret_cast<const char*>(memory_.data()) + begin_ + at;
  const Numbers<Number> found{reinterpret_cast<const Number*>(data), static_cast<size_t>(held)};
  for (size_t i = 0; below != UINT64_MAX && i < held; ++i) {
    if (static_cast<uint64_t>(found[i]) >= below) refuse_tables("has a number that is too large: " + place.where());
  }
  return found;
}

template Numbers<char> TextTables::numbers(const Json&, size_t, uint64_t) const;
template Numbers<uint8_t> TextTables::numbers(const Json&, size_t, uint64_t) const;
template Numbers<uint16_t> TextTables::numbers(const Json&, size_t, uint64_t) const;
template Numbers<uint32_t> TextTables::numbers(const Json&, size_t, uint64_t) const;
template Numbers<double> TextTables::numbers(const Json&, size_t, uint64_t) const;

Numbers<uint32_t> TextTables::starts(const Json& place, size_t end) const {
  const auto found = numbers<uint32_t>(place);
  uint64_t last = 0;
  for (size_t i = 0; i < found.count; ++i) {
    if (found[i] < last || found[i] > end) refuse_tables("has no ascending numbers: " + place.where());
    last = found[i];
  }
  if (found.count == 0 || last != end) refuse_tables("has no end: " + place.where());
  return found;
}

Texts TextTables::texts(const Json& place) const {
  const auto bytes = numbers<char>(place.at("bytes"));
  return {starts(place.at("starts"), bytes.count), bytes};
}

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
