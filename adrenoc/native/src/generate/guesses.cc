#include "generate/guesses.h"

#include <algorithm>

namespace adrenoc_runtime::opencl {
namespace {

// Fewer words are followed by anything, and more come too seldom.
constexpr size_t kMostWords = 3;
constexpr size_t kFewestWords = 2;
constexpr int64_t kLongestPause = 15;

}  // namespace

std::vector<int64_t> Guesses::after(const std::vector<int64_t>& text, size_t most) {
  std::vector<int64_t> guessed;
  if (left_ > 0) {
    --left_;
    return guessed;
  }
  for (size_t words = kMostWords; words >= kFewestWords; --words) {
    if (text.size() <= words) continue;
    const auto last = text.end() - static_cast<std::ptrdiff_t>(words);
    const auto found = std::find_end(text.begin(), text.end() - 1, last, text.end());
    if (found == text.end() - 1) continue;
    auto at = static_cast<size_t>(found - text.begin()) + words;
    // Behind the end a text goes on as was guessed.
    for (; guessed.size() < most; ++at) {
      guessed.push_back(at < text.size() ? text[at] : guessed[at - text.size()]);
    }
    break;
  }
  return guessed;
}

void Guesses::tell(size_t right) {
  ++count_.runs;
  count_.tokens += static_cast<int64_t>(right);
  pause_ = right == 0 ? std::min(2 * pause_ + 1, kLongestPause) : 0;
  left_ = pause_;
}

}  // namespace adrenoc_runtime::opencl
