#include "text/blanks.h"

#include "base/utf8.h"

namespace adrenoc_runtime {

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

}  // namespace adrenoc_runtime
