// Asks a bundle for several shapes what it has, and goes from one to another; the tests compile
// this file.
//
//   shapes_program BUNDLE OPENCL CACHE
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "adrenoc.hpp"

namespace {

using Shape = std::vector<int64_t>;
using Values = std::vector<float>;

void expect(bool holds, const char* claim) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s (last error: %s)\n", claim, adrenoc_last_error());
  std::exit(1);
}
#define EXPECT(claim) expect(claim, #claim)

Values run(adrenoc::Model* model, const Shape& shape) {
  model->set_input_shapes({shape});
  EXPECT(model->inputs()[0].shape == shape);
  Values x(model->inputs()[0].bytes / sizeof(float));
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  Values y(model->outputs()[1].bytes / sizeof(float));
  model->bind_input(0, x);
  model->bind_output(1, y);
  model->run();
  return y;
}

}  // namespace

int main(int, char** values) {
  adrenoc::Options options;
  options.opencl_library = values[2];
  options.cache_folder = values[3];
  adrenoc::Model model(values[1], options);

  const auto buckets = model.buckets();
  EXPECT(buckets.size() == 4);
  EXPECT(buckets[0][0].shape == (Shape{1, 3, 8, 9}));
  EXPECT(buckets[3][0].shape == (Shape{4, 3, 12, 9}));
  // The largest is the bundle's own shape, for those who ask for none.
  EXPECT(model.inputs()[0].shape == buckets[3][0].shape);

  const Values one = run(&model, {1, 3, 8, 9});
  EXPECT(one.size() == 5);
  // Filled up from 2 to 4: the first element of the batch is what it was alone.
  const Values two = run(&model, {2, 3, 8, 9});
  EXPECT(model.outputs()[1].shape == (Shape{5, 2}));
  for (size_t i = 0; i < one.size(); ++i) EXPECT(std::fabs(two[2 * i] - one[i]) < 1e-5F);
  EXPECT(run(&model, {1, 3, 8, 9}) == one);

  // What was bound belongs to another shape.
  model.set_input_shapes({{}});
  try {
    model.run();
    return 1;
  } catch (const adrenoc::Error& error) {
    EXPECT(error.status() == ADRENOC_BAD_ARGUMENT);
  }
  // A wrong choice changes nothing.
  run(&model, {2, 3, 12, 9});
  try {
    model.set_input_shapes({{2, 3, 10, 9}});
    return 1;
  } catch (const adrenoc::Error& error) {
    EXPECT(error.status() == ADRENOC_BAD_ARGUMENT);
  }
  EXPECT(model.inputs()[0].shape == (Shape{2, 3, 12, 9}));

  adrenoc_tensor_info info;
  EXPECT(adrenoc_bucket_count(nullptr) == 0);
  EXPECT(adrenoc_set_input_shapes(nullptr, nullptr, 1) == ADRENOC_BAD_ARGUMENT);
  EXPECT(adrenoc_bucket_output_info(nullptr, 0, 0, &info) == ADRENOC_BAD_ARGUMENT);
  return 0;
}
