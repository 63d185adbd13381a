// Inflates what the program is given, and damaged forms of it.  Built with sanitizers.
//
//   inflate_program BYTES              ; standard input inflated, which has to be so many bytes
//   inflate_program BYTES SEED COUNT   ; as often, damaged: prints how many were taken all the same
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <random>
#include <string>

#include "base/failure.h"
#include "bundle/formats.h"

int main(int count, char** words) {
  const std::string whole{std::istreambuf_iterator<char>(std::cin), {}};
  const uint64_t bytes = std::strtoull(words[1], nullptr, 10);
  if (count == 2) {
    try {
      std::cout << adrenoc_runtime::inflate(whole, bytes, "model.so");
    } catch (const adrenoc_runtime::Failure& failure) {
      std::cout << failure.what();
      return failure.status() == ADRENOC_BAD_BUNDLE ? 3 : 1;
    }
    return 0;
  }
  std::mt19937_64 random(std::strtoull(words[2], nullptr, 10));
  int taken = 0;
  for (int i = std::atoi(words[3]); i > 0; --i) {
    std::string text = whole;
    for (uint64_t times = 1 + random() % 4; times > 0 && !text.empty(); --times) {
      // Half of the damage goes where the first codes are.
      const size_t reach = random() % 2 == 0 ? std::min<size_t>(text.size(), 96) : text.size();
      const size_t at = random() % reach;
      if (random() % 4 == 0) {
        text.resize(at);
      } else {
        text[at] = static_cast<char>(random());
      }
    }
    try {
      // A size that is wrong, too, now and then.
      const uint64_t said = random() % 4 == 0 ? random() % (2 * bytes + 1) : bytes;
      taken += adrenoc_runtime::inflate(text, said, "model.so").size() == said ? 1 : 0;
    } catch (const adrenoc_runtime::Failure&) {
    }
  }
  std::printf("%d\n", taken);
  return 0;
}
