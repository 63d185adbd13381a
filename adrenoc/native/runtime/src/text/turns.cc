#include "text/turns.h"

#include <algorithm>
#include <ctime>
#include <string_view>

#include "base/failure.h"
#include "base/utf8.h"

namespace adrenoc_runtime {
namespace {

constexpr char kDate = 1;  // around the form of a date
constexpr size_t kMostOfDate = 256;

[[noreturn]] void refuse_messages(const std::string& what) { throw Failure(ADRENOC_BAD_ARGUMENT, what); }

// The text with each date in place of its form.
std::string with_dates(const std::string& text) {
  std::string made;
  size_t rest = 0;
  for (size_t at = text.find(kDate); at != std::string::npos; at = text.find(kDate, rest)) {
    const size_t end = text.find(kDate, at + 1);
    if (end == std::string::npos) break;
    const std::string form = text.substr(at + 1, end - at - 1);
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    char date[kMostOfDate];
    const size_t length = std::strftime(date, sizeof(date), form.c_str(), &local);
    made.append(text, rest, at - rest).append(date, length);
    rest = end + 1;
  }
  return made.append(text, rest, std::string::npos);
}

// What Python's str.strip takes away.
bool is_blank(uint32_t number) { return is_space(number) || (number >= 0x1C && number <= 0x1F); }

std::string trimmed(std::string_view text) {
  size_t begin = text.size();
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (!is_blank(point.number)) {
      begin = std::min(begin, at);
      end = at + point.bytes;
    }
    at += point.bytes;
  }
  return begin < end ? std::string(text.substr(begin, end - begin)) : std::string();
}

std::string content_of(const Json& turns, const Message& message) {
  std::string content = message.content;
  const std::string& drops = turns.at("drops").text();
  if (message.role == "assistant" && !drops.empty()) {
    if (const size_t at = content.rfind(drops); at != std::string::npos) {
      const std::string& blanks = turns.at("drops_blanks").text();
      content.erase(0, std::min(content.find_first_not_of(blanks, at + drops.size()), content.size()));
    }
  }
  for (const Json& role : turns.at("trims").list()) {
    if (role.text() == message.role) return trimmed(content);
  }
  return content;
}

}  // namespace

std::string render_turns(const Json& turns, const std::vector<Message>& messages) {
  if (turns.is_null()) {
    throw Failure(ADRENOC_UNSUPPORTED,
                  "the bundle does not hold how its model wants turns written: no template lay beside "
                  "the model, or its decisions.json says why it was left out (\"chats on the "
                  "device\")");
  }
  for (const Message& message : messages) {
    if (message.content.empty()) refuse_messages("a message of the role " + message.role + " is empty");
  }
  auto rest = messages.begin();
  std::string text = turns.at("begin").text();
  if (rest != messages.end() && rest->role == "system") {
    if (turns.at("begin_system").is_null()) {
      throw Failure(ADRENOC_UNSUPPORTED,
                    "the model's template takes no message of a system: put it before the first of "
                    "the user");
    }
    text = turns.at("begin_system").text() + content_of(turns, *rest) +
           turns.at("after_system").text();
    ++rest;
  }
  const auto count = messages.end() - rest;
  for (auto at = rest; at != messages.end(); ++at) {
    const bool is_users = (at - rest) % 2 == 0;
    if (at->role != (is_users ? "user" : "assistant")) {
      refuse_messages("message " + std::to_string(at - messages.begin()) + " has the role " + at->role +
             ", expected " + (is_users ? "user" : "assistant") +
             ": a system's may come first, then a user's and an answer in turns");
    }
    if (at != rest) text += turns.at(is_users ? "to_user" : "to_answer").text();
    text += content_of(turns, *at);
  }
  if (count % 2 == 0) refuse_messages("the last message is not the user's, so that there is nothing to answer");
  return with_dates(text + turns.at("end").text());
}

}  // namespace adrenoc_runtime
