// Asks a bundle of two signatures what it has, and goes from one to the other and back; the tests
// compile this file.
//
//   signatures_program BUNDLE OPENCL CACHE
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "adrenoc.hpp"

namespace {

using Values = std::vector<float>;

void expect(bool holds, const char* claim) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s (last error: %s)\n", claim, adrenoc_last_error());
  std::exit(1);
}
#define EXPECT(claim) expect(claim, #claim)

// The first output for inputs of 1, 2, 3, ... hundredths.
Values run(adrenoc::Model* model) {
  Values x(model->inputs()[0].bytes / sizeof(float));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 64 + 1) / 100;
  Values y(model->outputs()[0].bytes / sizeof(float));
  model->bind_input(0, x);
  model->bind_output(0, y);
  model->run();
  return y;
}

}  // namespace

int main(int, char** values) {
  adrenoc::Options options;
  options.opencl_library = values[2];
  options.cache_folder = values[3];
  adrenoc::Model model(values[1], options);

  EXPECT((model.signatures() == std::vector<std::string>{"wide", "tall"}));
  EXPECT(model.inputs()[0].name == "wide_x:0" && model.outputs().size() == 2);
  EXPECT(model.buckets().size() == 1);
  const Values wide = run(&model);
  EXPECT(wide.size() == 48);

  model.set_signature("tall");
  EXPECT(model.inputs()[0].name == "tall_x:0" && model.outputs().size() == 1);
  EXPECT(model.buckets()[0][0].shape == (std::vector<int64_t>{1, 64}));
  // What was bound is of the other call.
  try {
    model.run();
    return 1;
  } catch (const adrenoc::Error& error) {
    EXPECT(error.status() == ADRENOC_BAD_ARGUMENT);
  }
  const Values tall = run(&model);
  // The same constants and, row for row, the same numbers.
  for (size_t i = 0; i < tall.size(); ++i) EXPECT(tall[i] == wide[i] && tall[i] == wide[32 + i]);
  // A wrong choice changes nothing.
  try {
    model.set_signature("tal");
    return 1;
  } catch (const adrenoc::Error& error) {
    EXPECT(error.status() == ADRENOC_BAD_ARGUMENT);
    EXPECT(std::strstr(error.what(), "the bundle has wide, tall") != nullptr);
  }
  EXPECT(run(&model) == tall);
  // The proof goes through both, and leaves what was chosen.
  EXPECT(model.verify().wrong.empty());
  EXPECT(model.inputs()[0].name == "tall_x:0");
  model.set_signature("wide");
  EXPECT(run(&model) == wide);

  EXPECT(adrenoc_signature_count(nullptr) == 0);
  EXPECT(adrenoc_signature_name(nullptr, 0) == nullptr);
  EXPECT(adrenoc_set_signature(nullptr, "wide") == ADRENOC_BAD_ARGUMENT);
  return 0;
}
