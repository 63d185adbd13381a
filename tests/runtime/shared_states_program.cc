// Calls signatures of a bundle by their names, one after the other, and prints what each gives; the
// tests compile this file.
//
//   shared_states_program BUNDLE OPENCL CACHE BUDGET [SIGNATURE INPUT]...
//
// Each input is that number, everywhere.  With a BUDGET in bytes, another model takes the memory
// before the last call.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "adrenoc.hpp"

namespace {

std::vector<float> run(adrenoc::Model* model, float input) {
  std::vector<float> x(model->inputs()[0].bytes / sizeof(float), input);
  std::vector<float> y(model->outputs()[0].bytes / sizeof(float));
  model->bind_input(0, x);
  model->bind_output(0, y);
  model->run();
  return y;
}

}  // namespace

int main(int count, char** values) {
  adrenoc::Options options;
  options.opencl_library = values[2];
  options.cache_folder = values[3];
  adrenoc::set_memory_budget(std::strtoull(values[4], nullptr, 10));
  adrenoc::Model model(values[1], options);
  std::unique_ptr<adrenoc::Model> other;
  for (int i = 5; i < count; i += 2) {
    if (i + 2 >= count && std::atoll(values[4]) != 0) {
      other = std::make_unique<adrenoc::Model>(values[1], options);
    }
    model.set_signature(values[i]);
    for (const float y : run(&model, std::strtof(values[i + 1], nullptr))) std::printf("%.9g ", y);
    std::printf("\n");
  }
  return 0;
}
