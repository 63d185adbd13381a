// Words of adrenoc_run's command line, and of what it prints.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "adrenoc.h"

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline long parse_count(const std::string& option, const std::string& text) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < 0 || value > 100000000) {
    throw UsageError(option + " is \"" + text + "\", expected a number");
  }
  return value;
}

inline adrenoc_level parse_level(const std::string& option, const std::string& text) {
  if (text == "low") return ADRENOC_LEVEL_LOW;
  if (text == "normal") return ADRENOC_LEVEL_NORMAL;
  if (text == "high") return ADRENOC_LEVEL_HIGH;
  throw UsageError(option + " is \"" + text + "\", expected low, normal or high");
}

// "1x3x224x224", or "3,5,7".
inline std::vector<int64_t> parse_counts(const std::string& option, const std::string& text,
                                         char mark) {
  std::vector<int64_t> counts;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(mark, start), text.size());
    counts.push_back(parse_count(option, text.substr(start, end - start)));
    start = end + 1;
  }
  return counts;
}

inline float parse_number(const std::string& option, const std::string& text) {
  char* end = nullptr;
  const float value = std::strtof(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0)) {
    throw UsageError(option + " is \"" + text + "\", expected a number");
  }
  return value;
}

inline std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') out += '\\';
    if (static_cast<unsigned char>(letter) >= 0x20) out += letter;
  }
  return out + "\"";
}

// A JSON list of lines.
inline std::string quoted_lines(const std::string& text) {
  std::string list = "[";
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    list += (list.size() > 1 ? ", " : "") + quoted(text.substr(start, end - start));
    start = end + 1;
  }
  return list + "]";
}
