#include "base/json.h"

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/failure.h"
#include "base/utf8.h"

namespace adrenoc_runtime {
namespace {

// Deeper than any manifest, and shallow enough for the stack of any thread.
constexpr int kMaxDepth = 32;
// Of a place in a message; a key may be as long as the file.
constexpr size_t kMaxWhereBytes = 200;

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

}  // namespace

class JsonParser {
 public:
  JsonParser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Json parse_all() {
    Json value = parse_value(step({nullptr, where_, 0, false}), 0);
    skip_blanks();
    if (at_ != text_.size()) refuse("more text after the end of the value");
    return value;
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const {
    refuse_bundle({where_, " is not JSON: ", reason, " at byte ", at_});
  }
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_blanks() {
    while (is_blank(peek())) ++at_;
  }
  void expect(char letter) {
    if (peek() != letter) refuse(std::string("no '") + letter + "'");
    ++at_;
  }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  static Json::Place step(Json::Step step) {
    return std::make_shared<const Json::Step>(std::move(step));
  }

  Json parse_value(const Json::Place& place, int depth) {
    if (depth > kMaxDepth) refuse("lists and objects nest too deeply");
    skip_blanks();
    Json json;
    json.place_ = place;
    const char first = peek();
    if (first == '{') {
      json.value_ = parse_object(place, depth);
    } else if (first == '[') {
      json.value_ = parse_list(place, depth);
    } else if (first == '"') {
      json.value_ = parse_text();
    } else if (first == '-' || is_digit(first)) {
      parse_number(&json);
    } else if (take("true")) {
      json.value_ = true;
    } else if (take("false")) {
      json.value_ = false;
    } else if (!take("null")) {
      refuse("no value");
    }
    return json;
  }

  Json::Object parse_object(const Json::Place& place, int depth) {
    Json::Object object;
    parse_items('{', '}', [&] {
      skip_blanks();
      std::string key = parse_text();
      skip_blanks();
      expect(':');
      Json value = parse_value(step({place, key, 0, false}), depth + 1);
      if (!object.emplace(std::move(key), std::move(value)).second) refuse("a key that repeats");
    });
    return object;
  }

  Json::List parse_list(const Json::Place& place, int depth) {
    Json::List list;
    parse_items('[', ']', [&] {
      list.push_back(parse_value(step({place, {}, list.size(), true}), depth + 1));
    });
    return list;
  }

  template <typename ParseItem>
  void parse_items(char open, char close, ParseItem parse_item) {
    expect(open);
    skip_blanks();
    if (peek() != close) {
      parse_item();
      for (skip_blanks(); peek() == ','; skip_blanks()) {
        ++at_;
        parse_item();
      }
    }
    expect(close);
  }

  std::string parse_text() {
    std::string text;
    expect('"');
    while (true) {
      const size_t plain = at_;
      while (at_ < text_.size() && stands_for_itself(text_[at_])) ++at_;
      text.append(text_, plain, at_ - plain);
      if (at_ >= text_.size()) refuse("a text without end");
      const char letter = text_[at_++];
      if (letter == '"') return text;
      if (letter != '\\') refuse("a control character in a text");
      parse_escape(&text);
    }
  }

  static bool is_blank(char letter) {
    return letter == ' ' || letter == '\n' || letter == '\t' || letter == '\r';
  }

  static bool stands_for_itself(char letter) {
    return letter != '"' && letter != '\\' && static_cast<unsigned char>(letter) >= 0x20;
  }

  void parse_escape(std::string* text) {
    static constexpr std::string_view letters = "\"\\/bfnrt";
    static constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
    const char letter = peek();
    const size_t known = letters.find(letter);
    if (at_ < text_.size() && known != letters.npos) {
      ++at_;
      *text += meanings[known];
      return;
    }
    if (!take("u")) refuse("an unknown escape");
    uint32_t code = parse_hex4();
    if (code >= 0xD800 && code < 0xDC00) {
      if (!take("\\u")) refuse("half of a surrogate pair");
      const uint32_t low = parse_hex4();
      if (low < 0xDC00 || low > 0xDFFF) refuse("half of a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
      refuse("half of a surrogate pair");
    }
    append_utf8(code, text);
  }

  uint32_t parse_hex4() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const char letter = peek();
      const char lower = static_cast<char>(letter | 0x20);
      if (is_digit(letter)) {
        code = code << 4 | static_cast<uint32_t>(letter - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        code = code << 4 | static_cast<uint32_t>(lower - 'a' + 10);
      } else {
        refuse("no hexadecimal digit");
      }
      ++at_;
    }
    return code;
  }

  void parse_number(Json* json) {
    const size_t start = at_;
    if (peek() == '-') ++at_;
    if (!is_digit(peek())) refuse("no digit");
    const bool leading_zero = peek() == '0';
    const size_t digits = skip_digits();
    if (leading_zero && digits > 1) refuse("a number that starts with 0");
    bool whole = true;
    if (peek() == '.') {
      whole = false;
      ++at_;
      if (skip_digits() == 0) refuse("no digit");
    }
    if (peek() == 'e' || peek() == 'E') {
      whole = false;
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (skip_digits() == 0) refuse("no digit");
    }
    const std::string number(text_.substr(start, at_ - start));
    errno = 0;
    if (!whole) {
      json->value_ = std::strtod(number.c_str(), nullptr);
      return;
    }
    json->value_ = static_cast<int64_t>(std::strtoll(number.c_str(), nullptr, 10));
    if (errno == ERANGE) refuse("a number beyond 64 bits");
  }

  size_t skip_digits() {
    const size_t start = at_;
    while (is_digit(peek())) ++at_;
    return at_ - start;
  }

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
};

Json Json::parse(std::string_view text, const std::string& where) {
  return JsonParser(text, where).parse_all();
}

std::string Json::where() const {
  std::vector<const Step*> way;  // from the value up to the file
  for (const Step* step = place_.get(); step != nullptr; step = step->above.get()) {
    way.push_back(step);
  }
  // "manifest.json", "manifest.json: inputs[0]", "manifest.json: inputs[0].name".
  std::string text;
  for (auto step = way.rbegin(); step != way.rend() && text.size() < kMaxWhereBytes; ++step) {
    if ((*step)->above == nullptr) {
      text = (*step)->key + ": ";
    } else if ((*step)->is_element) {
      text += "[" + std::to_string((*step)->index) + "]";
    } else {
      if (text.compare(text.size() - 2, 2, ": ") != 0) text += ".";
      text += (*step)->key.substr(0, kMaxWhereBytes);
    }
  }
  if (way.size() == 1) text.resize(text.size() - 2);
  return text.size() > kMaxWhereBytes ? text.substr(0, kMaxWhereBytes) + "..." : text;
}

const Json& Json::at(const std::string& key) const {
  const auto found = object().find(key);
  if (found == object().end()) refuse_bundle({where(), " lacks the key `", key, "`"});
  return found->second;
}

template <typename T>
const T& Json::as(const char* expected) const {
  if (const auto* value = std::get_if<T>(&value_)) return *value;
  refuse(expected);
}

const Json::List& Json::list() const { return as<List>("a list"); }
const Json::Object& Json::object() const { return as<Object>("an object"); }
const std::string& Json::text() const { return as<std::string>("text"); }
int64_t Json::integer() const { return as<int64_t>("an integer"); }
bool Json::boolean() const { return as<bool>("true or false"); }

double Json::number() const {
  if (const auto* integer = std::get_if<int64_t>(&value_)) return static_cast<double>(*integer);
  return as<double>("a number");
}

bool Json::is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }

uint64_t Json::count() const {
  if (integer() < 0) refuse("0 or more");
  return static_cast<uint64_t>(integer());
}

void Json::refuse(const char* expected) const {
  refuse_bundle({where(), " is of another type than expected: ", expected});
}

}  // namespace adrenoc_runtime
