// Loads a bundle, runs it on zeros and prints the largest value of each float output.
//
//   adrenoc_sample [BUNDLE [OPENCL_LIBRARY]]
#include <adrenoc.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

int main(int count, char** values) {
  adrenoc::Options options;
  if (count > 2) options.opencl_library = values[2];
  try {
    adrenoc::Model model(count > 1 ? values[1] : BUNDLE, options);
    std::printf("%s on %s\n", model.name().c_str(), model.device().c_str());

    std::vector<std::vector<char>> inputs;
    for (const adrenoc::Tensor& tensor : model.inputs()) inputs.emplace_back(tensor.bytes);
    for (size_t i = 0; i < inputs.size(); ++i) model.bind_input(i, inputs[i]);
    const std::vector<adrenoc::Tensor> tensors = model.outputs();
    std::vector<std::vector<char>> outputs;
    for (const adrenoc::Tensor& tensor : tensors) outputs.emplace_back(tensor.bytes);
    for (size_t i = 0; i < outputs.size(); ++i) model.bind_output(i, outputs[i]);
    model.run();

    for (size_t i = 0; i < outputs.size(); ++i) {
      if (tensors[i].dtype != "float32" || outputs[i].empty()) continue;
      std::vector<float> numbers(outputs[i].size() / sizeof(float));
      std::memcpy(numbers.data(), outputs[i].data(), outputs[i].size());
      const auto largest = std::max_element(numbers.begin(), numbers.end());
      std::printf("%s: largest %g at %td\n", tensors[i].name.c_str(), *largest,
                  largest - numbers.begin());
    }
    std::printf("first run %.1f ms\n", model.times().first_compute_ms);
    return 0;
  } catch (const adrenoc::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
