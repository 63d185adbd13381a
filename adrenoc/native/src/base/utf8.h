// Texts in UTF-8: code points one by one, and what is no UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
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

[[nodiscard]] CodePoint code_point_at(std::string_view text, size_t at);
// Unicode's property White_Space.
[[nodiscard]] bool is_space(uint32_t number);
// Where the blanks (white space) begin that end at `end`, not before `least`.
[[nodiscard]] size_t left_of_blanks(std::string_view text, size_t least, size_t end);
// Where the blanks end that begin at `begin`.
[[nodiscard]] size_t right_of_blanks(std::string_view text, size_t begin);

[[nodiscard]] bool is_utf8(std::string_view text);
void append_utf8(uint32_t number, std::string* text);
// The text with a mark (U+FFFD) for all that is none.
[[nodiscard]] std::string with_marks(std::string_view bytes);

// A number by a form of printf's.
[[nodiscard]] std::string number_text(const char* form, double number);

}  // namespace adrenoc_runtime
