// A strict reader of JSON (RFC 8259) for data that may be damaged or hostile.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace adrenoc_runtime {

// A JSON value that knows its place ("manifest.json: inputs[0].shape"), so that each question that
// it cannot answer becomes a message that names it.
class Json {
 public:
  using List = std::vector<Json>;
  using Object = std::map<std::string, Json>;

  // Throws Failure (bad bundle) unless `text` is one whole value.  Numbers without fraction and
  // exponent must fit in 64 bits; nesting is limited, keys must not repeat.
  [[nodiscard]] static Json parse(std::string_view text, const std::string& where);

  // Each throws Failure (bad bundle) where the value is of another type or lacks the key.
  [[nodiscard]] const Json& at(const std::string& key) const;
  [[nodiscard]] const List& list() const;
  [[nodiscard]] const Object& object() const;
  [[nodiscard]] const std::string& text() const;
  [[nodiscard]] int64_t integer() const;
  [[nodiscard]] bool boolean() const;
  // With or without a fraction.
  [[nodiscard]] double number() const;
  [[nodiscard]] bool is_null() const;
  // An integer of 0 or more.
  [[nodiscard]] uint64_t count() const;

  // The place in words, cut where it is long.
  [[nodiscard]] std::string where() const;

 private:
  friend class JsonParser;
  // One step of the way to a value.  Values share the steps above theirs: a text for each would
  // take the length of the longest key for every element of a list.
  struct Step {
    std::shared_ptr<const Step> above;  // none: `key` is the file
    std::string key;
    size_t index = 0;  // in place of the key where this is the element of a list
    bool is_element = false;
  };
  using Place = std::shared_ptr<const Step>;

  template <typename T>
  [[nodiscard]] const T& as(const char* expected) const;
  [[noreturn]] void refuse(const char* expected) const;

  Place place_;
  std::variant<std::nullptr_t, bool, int64_t, double, std::string, List, Object> value_;
};

}  // namespace adrenoc_runtime
