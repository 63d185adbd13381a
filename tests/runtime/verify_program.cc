// Verifies a driver through the C++ wrapper; the tests compile this file.
//
//   verify_program TAR OPENCL INPUT...
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

#include "adrenoc.hpp"

int main(int count, char** values) {
  adrenoc::Options options;
  options.opencl_library = values[2];
  std::vector<char> bytes;
  {
    std::ifstream stream(values[1], std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  adrenoc::Model model(bytes.data(), bytes.size(), options);
  bytes.assign(bytes.size(), '\x55');  // it may be released: nothing of it may be used later
  std::vector<std::vector<char>> inputs;
  for (int i = 3; i < count; ++i) {
    std::ifstream stream(values[i], std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    model.bind_input(inputs.size() - 1, inputs.back());
  }
  std::vector<std::vector<char>> outputs;
  for (const adrenoc::Tensor& tensor : model.outputs()) outputs.emplace_back(tensor.bytes);
  for (size_t i = 0; i < outputs.size(); ++i) model.bind_output(i, outputs[i]);
  model.run();
  const std::vector<std::vector<char>> before = outputs;
  const adrenoc::Model::Verdict verdict = model.verify();
  for (std::vector<char>& output : outputs) output.assign(output.size(), '\x55');
  model.run();
  if (outputs != before) return 1;
  std::printf("%s\n", verdict.wrong.empty() ? "right" : verdict.wrong.c_str());
  return 0;
}
