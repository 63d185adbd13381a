// Texts in UTF-8: code points one by one, and what is no UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace adrenoc_runtime {

// Of the code point that begins at `at`: its number, and its bytes.  Where no whole one begins
// there, `is_whole` is false and `bytes` is what one mark stands for, as Unicode recommends (3.9,
// "maximal subparts").
struct CodePoint {
  uint32_t number;
  size_t bytes;
  bool is_whole;
};

// Bytes that follow the first, and what the second has to be at least and at most: the table 3-7 of
// the Unicode Standard.
struct Form {
  size_t following;
  uint8_t least;
  uint8_t most;
};

inline Form form_of(uint8_t first) {
  if (first < 0x80) return {0, 0, 0};
  if (first < 0xC2) return {4, 0, 0};  // begins nothing
  if (first < 0xE0) return {1, 0x80, 0xBF};
  if (first == 0xE0) return {2, 0xA0, 0xBF};
  if (first == 0xED) return {2, 0x80, 0x9F};
  if (first < 0xF0) return {2, 0x80, 0xBF};
  if (first == 0xF0) return {3, 0x90, 0xBF};
  if (first < 0xF4) return {3, 0x80, 0xBF};
  if (first == 0xF4) return {3, 0x80, 0x8F};
  return {4, 0, 0};
}

[[nodiscard]] inline CodePoint code_point_at(std::string_view text, size_t at) {
  const auto first = static_cast<uint8_t>(text[at]);
  const Form form = form_of(first);
  if (form.following == 0) return {first, 1, true};
  if (form.following == 4) return {0, 1, false};
  uint32_t number = first & (0x3Fu >> form.following);
  for (size_t i = 1; i <= form.following; ++i) {
    const auto byte = at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : uint8_t{0};
    const uint8_t least = i == 1 ? form.least : 0x80;
    const uint8_t most = i == 1 ? form.most : 0xBF;
    if (byte < least || byte > most) return {0, i, false};
    number = number << 6 | (byte & 0x3Fu);
  }
  return {number, form.following + 1, true};
}

// Unicode's property White_Space.
[[nodiscard]] inline bool is_space(uint32_t number) {
  return (number >= 0x9 && number <= 0xD) || number == 0x20 || number == 0x85 || number == 0xA0 ||
         number == 0x1680 || (number >= 0x2000 && number <= 0x200A) || number == 0x2028 ||
         number == 0x2029 || number == 0x202F || number == 0x205F || number == 0x3000;
}

// Where the blanks (white space) begin that end at `end`, not before `least`.
[[nodiscard]] inline size_t left_of_blanks(std::string_view text, size_t least, size_t end) {
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

// Where the blanks end that begin at `begin`.
[[nodiscard]] inline size_t right_of_blanks(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const CodePoint point = code_point_at(text, begin);
    if (!is_space(point.number)) break;
    begin += point.bytes;
  }
  return begin;
}

[[nodiscard]] inline bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (!point.is_whole) return false;
    at += point.bytes;
  }
  return true;
}

inline void append_utf8(uint32_t number, std::string* text) {
  const auto add = [&](uint32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (number < 0x80) return add(number);
  if (number < 0x800) {
    add(0xC0 | number >> 6);
  } else {
    if (number < 0x10000) {
      add(0xE0 | number >> 12);
    } else {
      add(0xF0 | number >> 18);
      add(0x80 | (number >> 12 & 0x3F));
    }
    add(0x80 | (number >> 6 & 0x3F));
  }
  add(0x80 | (number & 0x3F));
}

// The text with a mark (U+FFFD) for all that is none.
[[nodiscard]] inline std::string with_marks(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint point = code_point_at(bytes, at);
    if (point.is_whole) {
      text.append(bytes.substr(at, point.bytes));
    } else {
      append_utf8(0xFFFD, &text);
    }
    at += point.bytes;
  }
  return text;
}

// A number by a form of printf's.
[[nodiscard]] inline std::string number_text(const char* form, double number) {
  char text[64];
  (void)std::snprintf(text, sizeof(text), form, number);
  return text;
}

}  // namespace adrenoc_runtime
