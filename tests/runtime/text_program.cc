// Makes tokens of texts, and texts of tokens, by a text_tables.bin.  Built with sanitizers.
//
//   text_program TABLES encode|plain|decode|stream ; a line each of standard input: bytes in
//                                                  ; hexadecimal, or tokens
//   text_program TABLES damaged SEED COUNT         ; damaged as often: prints how many were taken
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/failure.h"
#include "text/tokenizer.h"

using adrenoc_runtime::Failure;
using adrenoc_runtime::TextStream;
using adrenoc_runtime::Tokenizer;

namespace {

std::string from_hex(const std::string& line) {
  std::string bytes;
  for (size_t i = 0; i + 1 < line.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::strtoul(line.substr(i, 2).c_str(), nullptr, 16)));
  }
  return bytes;
}

void print_hex(const std::string& bytes) {
  for (const char byte : bytes) std::printf("%02x", static_cast<unsigned char>(byte));
}

std::vector<int64_t> tokens_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<int64_t>(stream), {}};
}

void answer(const Tokenizer& tokenizer, const std::string& how, const std::string& line) {
  if (how == "encode" || how == "plain") {
    for (const int64_t token : tokenizer.encode(from_hex(line), how == "encode")) {
      std::printf("%lld ", static_cast<long long>(token));
    }
  } else if (how == "decode") {
    const std::vector<int64_t> tokens = tokens_of(line);
    print_hex(tokenizer.decode(tokens.data(), tokens.data() + tokens.size()));
  } else {
    TextStream stream(&tokenizer);
    for (const int64_t token : tokens_of(line)) {
      print_hex(stream.feed(token));
      std::printf(" ");
    }
    print_hex(stream.finish());
  }
  std::printf("\n");
}

int count_taken(const std::string& whole, uint64_t seed, int count) {
  std::mt19937_64 random(seed);
  int taken = 0;
  for (; count > 0; --count) {
    std::string file = whole;
    for (uint64_t times = 1 + random() % 3; times > 0 && !file.empty(); --times) {
      // Half of the damage goes where the header is.
      const size_t at = random() % (random() % 2 == 0 ? std::min<size_t>(file.size(), 4096)
                                                     : file.size());
      if (random() % 8 == 0) {
        file.resize(at);
      } else {
        file[at] = static_cast<char>(random() % 4 == 0 ? random() : '0' + random() % 10);
      }
    }
    try {
      const Tokenizer tokenizer(file);
      const auto tokens = tokenizer.encode("A text: 12 caf\xC3\xA9s, don't 한 e\xCC\x81\n\n <|x|>", true);
      (void)tokenizer.decode(tokens.data(), tokens.data() + tokens.size());
      ++taken;
    } catch (const Failure&) {
    }
  }
  return taken;
}

}  // namespace

int main(int count, char** words) {
  std::ifstream file(words[1], std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  const std::string how = words[2];
  if (how == "damaged" && count == 5) {
    std::printf("%d\n", count_taken(whole, std::strtoull(words[3], nullptr, 10),
                                    std::atoi(words[4])));
    return 0;
  }
  try {
    const Tokenizer tokenizer(whole);
    for (std::string line; std::getline(std::cin, line);) answer(tokenizer, how, line);
  } catch (const Failure& failure) {
    std::printf("%s\n", failure.what());
    return 3;
  }
  return 0;
}
