#include "text/added_tokens.h"

#include "base/failure.h"
#include "text/blanks.h"

namespace adrenoc_runtime {
namespace {

// adrenoc/language/tables.py has the same.
constexpr uint8_t kNormalized = 1;
constexpr uint8_t kStripsLeft = 2;
constexpr uint8_t kStripsRight = 4;

}  // namespace

AddedTokens::AddedTokens(const TextTables& tables, const Json& said, size_t tokens)
    : contents_(tables.texts(said.at("contents"))),
      sorted_(contents_),
      ids_(tables.numbers<uint32_t>(said.at("ids"), 0, tokens)),
      flags_(tables.numbers<uint8_t>(said.at("flags"))) {
  bool is_whole = ids_.count == contents_.count() && flags_.count == contents_.count();
  for (size_t i = 0; i < contents_.count(); ++i) is_whole = is_whole && !contents_[i].empty();
  if (!is_whole) refuse_bundle("text_tables.bin has damaged tokens: " + said.where());
}

void AddedTokens::find(std::string_view text, bool is_normalized, const OnText& on_text,
                       const OnToken& on_token) const {
  size_t rest = 0;
  for (size_t at = 0; at < text.size();) {
    size_t found = kNoText;
    for (const auto& one : sorted_.beginnings(text.substr(at))) {
      if (((flags_[one.number] & kNormalized) != 0) == is_normalized) found = one.number;
    }
    if (found == kNoText) {
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
