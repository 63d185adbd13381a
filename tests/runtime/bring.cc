// Brings a constant as the runtime does while it loads a bundle: bring MOVES PARAMS NAME OUTPUT.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "base/failure.h"
#include "bundle/moves.h"
#include "files/safetensors.h"

namespace {

std::string read_file(const char* path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string moves_text = read_file(argv[1]);
  const std::string params_text = read_file(argv[2]);
  try {
    const auto moves = adrenoc_runtime::read_moves(moves_text);
    const auto params = adrenoc_runtime::read_safetensors(params_text, "params");
    const adrenoc_runtime::Move& move = moves.at(argv[3]);
    const auto made = adrenoc_runtime::bring(move, params.at(move.source), argv[3]);
    std::ofstream(argv[4], std::ios::binary).write(made.data(), made.size());
  } catch (const adrenoc_runtime::Failure& failure) {
    std::puts(failure.what());
    return 1;
  }
  return 0;
}
