// Runs a bundle through the C++ wrapper; the tests compile this file, with the runtime in it.
//
//   wrapper_program BUNDLE DEVICE OPENCL INPUT... ; outputs go to stdout as raw bytes.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "adrenoc.hpp"

int main(int count, char** values) {
  adrenoc::Options options;
  options.device = values[2];
  options.opencl_library = values[3];
  try {
    const adrenoc::Model missing("nowhere.adrenoc", options);
    return 1;
  } catch (const adrenoc::Error& error) {
    if (error.status() != ADRENOC_NOT_FOUND) return 1;
  }
  adrenoc::Model model(values[1], options);
  std::vector<std::vector<char>> inputs;
  std::vector<std::vector<char>> outputs;
  for (int i = 4; i < count; ++i) {
    std::ifstream stream(values[i], std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    model.bind_input(inputs.size() - 1, inputs.back());
  }
  for (const adrenoc::Tensor& tensor : model.outputs()) outputs.emplace_back(tensor.bytes);
  for (size_t i = 0; i < outputs.size(); ++i) model.bind_output(i, outputs[i]);
  model.run();
  for (const std::vector<char>& output : outputs) {
    std::fwrite(output.data(), 1, output.size(), stdout);
  }
  // Moved and replaced, it frees what it holds once.
  adrenoc::Model other = std::move(model);
  other = adrenoc::Model(values[1], options);
  return other.outputs().size() == outputs.size() ? 0 : 1;
}
