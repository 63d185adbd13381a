// Conversations as one text, as a model's template writes them (adrenoc/language/turns.py).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace adrenoc_runtime {

// `role` is "system", "user" or "assistant".
struct Message {
  std::string role;
  std::string content;
};

// The text of a system's message or none, then a user's and an answer in turns, a user's last, up to
// where the model is to speak.  Throws Failure: unsupported where `turns` is null, bad argument for
// other messages, bad bundle where `turns` is damaged.
[[nodiscard]] std::string render_turns(const Json& turns, const std::vector<Message>& messages);

}  // namespace adrenoc_runtime
