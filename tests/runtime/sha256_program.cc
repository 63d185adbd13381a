// Prints the SHA-256 of what it reads, in letters.
#include <cstdio>
#include <iterator>
#include <iostream>
#include <string>

#include "base/sha256.h"

int main() {
  const std::string content{std::istreambuf_iterator<char>(std::cin), {}};
  std::puts(adrenoc_runtime::sha256_hex(content).c_str());
}
