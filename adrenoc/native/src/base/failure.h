// The one exception of the runtime's own code: a status of the C API and a sentence of phrases.
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "adrenoc.h"

namespace adrenoc_runtime {

// Part of a sentence: text, or a number.
class Phrase {
 public:
  Phrase(const char* text) : text_(text) {}
  Phrase(std::string_view text) : text_(text) {}
  Phrase(const std::string& text) : text_(text) {}
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
  Phrase(Number number) : own_(std::to_string(number)), text_(own_) {}
  Phrase(const Phrase&) = delete;
  Phrase& operator=(const Phrase&) = delete;
  [[nodiscard]] std::string_view text() const { return text_; }

 private:
  std::string own_;
  std::string_view text_;
};

using Phrases = std::initializer_list<Phrase>;

inline std::string sentence(Phrases phrases) {
  std::string text;
  for (const Phrase& phrase : phrases) text += phrase.text();
  return text;
}

class Failure : public std::runtime_error {
 public:
  Failure(adrenoc_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  Failure(adrenoc_status status, Phrases phrases) : Failure(status, sentence(phrases)) {}
  [[nodiscard]] adrenoc_status status() const noexcept { return status_; }

 private:
  adrenoc_status status_;
};

[[noreturn]] inline void refuse_bundle(const std::string& message) {
  throw Failure(ADRENOC_BAD_BUNDLE, message);
}
[[noreturn]] inline void refuse_bundle(Phrases phrases) { refuse_bundle(sentence(phrases)); }

[[noreturn]] inline void refuse_argument(const std::string& message) {
  throw Failure(ADRENOC_BAD_ARGUMENT, message);
}
[[noreturn]] inline void refuse_argument(Phrases phrases) { refuse_argument(sentence(phrases)); }

}  // namespace adrenoc_runtime
