#include "text/added_tokens.h"

#include "base/failure.h"
#include "base/utf8.h"

namespace adrenoc_runtime {
namespace {

// adrenoc/language/tables.py has the same.
constexpr uint8_t kNormalized = 1;
constexpr uint8_t kStripsLeft = 2;
constexpr uint8_t kStripsRight = 4;

// Where the blanks begin that end at `end`, not before `least`.
size_t left_of_blanks(std::string_view text, size_t least, size_t end) {
  size_t begin = end;
  for (size_t at = least; at < end;) {
    const CodePoint point = code_point_at(text, at);
    if (!is_space(point.number)) {
      begin = end;
    } else if (begin == end) {
      begin = at;
    }
    at += point.bytes;
  }
  return begin;
}

size_t right_of_blanks(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const CodePoint point = code_point_at(text, begin);
    if (!is_space(point.number)) break;
    begin += point.bytes;
  }
  return begin;
}

}  // namespace

AddedTokens::AddedTokens(const TextTables& tables, const Json& said, size_t tokens)
    : contents_(tables.texts(said.at("contents"))),
      ids_(tables.numbers<uint32_t>(said.at("ids"), 0, tokens)),
      flags_(tables.numbers<uint8_t>(said.at("flags"))) {
  bool is_whole = ids_.count == contents_.count() && flags_.count == contents_.count();
  for (size_t i = 0; i < contents_.count(); ++i) is_whole = is_whole && !contents_[i].empty();
  if (!is_whole) refuse_bundle("text_tables.bin has damaged tokens: " + said.where());
}

size_t AddedTokens::longest(std::string_view rest, bool is_normalized) const {
  size_t low = 0;
  size_t high = contents_.count();
  size_t found = high;
  // Those that begin as the text does, a letter more each time.
  for (size_t length = 0; length < rest.size() && low < high; ++length) {
    const auto letter = static_cast<uint8_t>(rest[length]);
    const auto bound = [&](uint32_t least) {
      size_t from = low;
      size_t to = high;
      while (from < to) {
        const size_t at = (from + to) / 2;
        const std::string_view text = contents_[at];
        const bool is_less =
            text.size() <= length || static_cast<uint8_t>(text[length]) < least;
        (is_less ? from : to) = is_less ? at + 1 : at;
      }
      return from;
    };
    const size_t end = bound(letter + 1u);
    low = bound(letter);
    high = end;
    const bool ends = low < high && contents_[low].size() == length + 1;
    if (ends && ((flags_[low] & kNormalized) != 0) == is_normalized) found = low;
  }
  return found;
}

void AddedTokens::find(std::string_view text, bool is_normalized, const OnText& on_text,
                       const OnToken& on_token) const {
  size_t rest = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t found = longest(text.substr(at), is_normalized);
    if (found == contents_.count()) {
      ++at;
      continue;
    }
    size_t begin = at;
    at += contents_[found].size();
    if ((flags_[found] & kStripsLeft) != 0) begin = left_of_blanks(text, rest, begin);
    if ((flags_[found] & kStripsRight) != 0) at = right_of_blanks(text, at);
    if (rest < begin) on_text(rest, begin);
    on_token(ids_[found]);
    rest = at;
  }
  if (rest < text.size()) on_text(rest, text.size());
}

}  // namespace adrenoc_runtime
