// Guesses the next tokens of a text: what came the last time behind the words that it ends with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace adrenoc_runtime::opencl {

struct GuessCount {
  int64_t runs = 0;    // that checked guesses
  int64_t tokens = 0;  // that were guessed, and were right
};

class Guesses {
 public:
  // At most `most` tokens that may follow `text`; none where nothing is known, or where guesses were
  // wrong: then the next are made after 1, 3, 7, 15 tokens.
  [[nodiscard]] std::vector<int64_t> after(const std::vector<int64_t>& text, size_t most);
  // How many of those were right.
  void tell(size_t right);

  [[nodiscard]] const GuessCount& count() const { return count_; }

 private:
  GuessCount count_;
  int64_t pause_ = 0;  // tokens without a guess behind one that was wrong
  int64_t left_ = 0;   // of these
};

}  // namespace adrenoc_runtime::opencl
