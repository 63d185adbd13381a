// Words of command lines, and of what the programs print.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The value of an option that is a whole number.
inline long parse_count(const std::string& option, const std::string& text, long most = 100000000) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < 0 || value > most) {
    throw UsageError(option + " is \"" + text + "\", expected a number up to " +
                     std::to_string(most));
  }
  return value;
}

// An option and what takes its value; `takes_value` is false of one that is there or not.
template <typename Arguments>
struct Option {
  const char* name;
  void (*set)(Arguments& arguments, const std::string& option, const std::string& value);
  bool takes_value = true;
};

// Reads a command line.  What is no option goes to `other`.
template <typename Arguments, size_t count, typename Other>
void parse_options(int words, char** values, const Option<Arguments> (&options)[count],
                   Arguments* arguments, Other other) {
  for (int i = 1; i < words; ++i) {
    const std::string word = values[i];
    if (word.rfind("--", 0) != 0) {
      other(word);
      continue;
    }
    const auto known = std::find_if(std::begin(options), std::end(options),
                                    [&](const auto& option) { return word == option.name; });
    if (known == std::end(options)) throw UsageError("unknown option " + word);
    if (known->takes_value && i + 1 == words) throw UsageError(word + " has no value");
    known->set(*arguments, word, known->takes_value ? values[++i] : "");
  }
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

inline std::string json_quoted(const std::string& text) {
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') out += '\\';
    if (static_cast<unsigned char>(letter) >= 0x20) out += letter;
  }
  return out + "\"";
}

// A JSON list of lines.
inline std::string json_lines(const std::string& text) {
  std::string list = "[";
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    list += (list.size() > 1 ? ", " : "") + json_quoted(text.substr(start, end - start));
    start = end + 1;
  }
  return list + "]";
}
