#include "text/stops.h"

#include <algorithm>

namespace adrenoc_runtime {

std::string Stops::feed(const std::string& piece) {
  kept_ += piece;
  size_t first = std::string::npos;
  for (const std::string& text : texts_) first = std::min(first, kept_.find(text));
  if (first != std::string::npos) {
    has_stopped_ = true;
    return give(first);
  }
  size_t begun = 0;  // letters at the end that a stop begins with
  for (const std::string& text : texts_) {
    for (size_t length = std::min(text.size(), kept_.size()); length > begun; --length) {
      if (kept_.compare(kept_.size() - length, length, text, 0, length) == 0) begun = length;
    }
  }
  return give(kept_.size() - begun);
}

std::string Stops::finish(const std::string& piece) {
  std::string given = feed(piece);
  return has_stopped_ ? given : given + give(kept_.size());
}

std::string Stops::give(size_t count) {
  std::string given = kept_.substr(0, count);
  kept_.erase(0, count);
  return given;
}

}  // namespace adrenoc_runtime
