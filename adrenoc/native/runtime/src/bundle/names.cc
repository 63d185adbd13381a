#include "bundle/names.h"

#include <algorithm>
#include <string_view>

#include "base/failure.h"

namespace adrenoc_runtime {
namespace {

constexpr size_t kMostLetters = 100;
constexpr size_t kMostInPart = 200;
constexpr size_t kMostInPath = 1000;
constexpr long kMostFolders = 7;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Whether it begins with a letter, digit or `_` and has nothing but these and `marks` after it.
bool is_name(std::string_view text, size_t most, std::string_view marks) {
  const auto is_plain = [](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_'; };
  return !text.empty() && text.size() <= most && is_plain(text.front()) &&
         std::all_of(text.begin(), text.end(), [&](char c) {
           return is_plain(c) || marks.find(c) != marks.npos;
         });
}

// As it may be printed: what moves a cursor does not get through, nor do pages of text.
std::string shown(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, kMostLetters)) out += c < ' ' || c > '~' ? '?' : c;
  return out + (text.size() > kMostLetters ? "..." : "");
}

void enforce(bool fits, const std::string& text, const std::string& where, const char* expected) {
  if (!fits) refuse_bundle(where + " is \"" + shown(text) + "\", expected " + expected);
}

}  // namespace

void check_bundle_name(const std::string& text, const std::string& where) {
  enforce(is_name(text, kMostLetters, ".-"), text, where,
          "a name of at most 100 letters, digits, `_`, `.` and `-`");
}

void check_word(const std::string& text, const std::string& where) {
  enforce(is_name(text, kMostInPart, ".:+-"), text, where,
          "a word of at most 200 letters, digits, `_`, `.`, `:`, `+` and `-`");
}

void check_path(const std::string& text, const std::string& where) {
  bool fits = text.size() <= kMostInPath &&
              std::count(text.begin(), text.end(), '/') <= kMostFolders;
  for (size_t start = 0; fits && start <= text.size();) {
    const size_t end = std::min(text.find('/', start), text.size());
    fits = is_name(std::string_view(text).substr(start, end - start), kMostInPart, ".+-");
    start = end + 1;
  }
  enforce(fits, text, where, "the path of a file inside of the bundle");
}

}  // namespace adrenoc_runtime
