// Guesses the next tokens of a text: what came the last time behind the words that it ends with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace adrenoc_runtime::opencl {

// Fewer words are followed by anything, and more come too seldom.
constexpr size_t kMostWords = 3;
constexpr size_t kFewestWords = 2;
constexpr int64_t kLongestPause = 15;

struct GuessCount {
  int64_t runs = 0;    // that checked guesses
  int64_t tokens = 0;  // that were guessed, and were right
};

class Guesses {
 public:
  // At most `most` tokens that may follow `text`; none where nothing is known, or where guesses
  // were wrong: then the next are made after 1, 3, 7, 15 tokens.
  [[nodiscard]] std::vector<int64_t> after(const std::vector<int64_t>& text, size_t most) {
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
  // How many of those were right.
  void tell(size_t right) {
    ++count_.runs;
    count_.tokens += static_cast<int64_t>(right);
    pause_ = right == 0 ? std::min(2 * pause_ + 1, kLongestPause) : 0;
    left_ = pause_;
  }

  [[nodiscard]] const GuessCount& count() const { return count_; }

 private:
  GuessCount count_;
  int64_t pause_ = 0;  // tokens without a guess behind one that was wrong
  int64_t left_ = 0;   // of these
};

}  // namespace adrenoc_runtime::opencl
