// A model whose state goes on from run to run, and from an eviction to the return.
//
//   states_program BUNDLE OPENCL CACHE ; the model: y = 2 (h / 2 + x), h becomes h / 2 + x
#include "held_model.h"

namespace {

constexpr size_t kNumbers = 8;

class Stepper {
 public:
  Stepper(const std::string& path, const adrenoc::Options& options) : model(path, options) {
    for (size_t i = 0; i < model.inputs().size(); ++i) {
      (model.inputs()[i].name == "x" ? x_ : h_) = i;
    }
    model.bind_input(x_, in_);
    model.bind_output(0, out_);
  }
  // The state's last number after a step on these.
  float step(float x) {
    for (float& number : in_) number = x;
    model.run();
    return out_.back() / 2;
  }
  void hold(const std::vector<float>* state) {
    if (state == nullptr) {
      model.bind_input(h_, nullptr, 0);
    } else {
      model.bind_input(h_, *state);
    }
  }

  adrenoc::Model model;

 private:
  size_t x_ = 0;
  size_t h_ = 0;
  std::vector<float> in_ = std::vector<float>(kNumbers);
  std::vector<float> out_ = std::vector<float>(kNumbers);
};

}  // namespace

int main(int count, char** values) {
  if (count != 4) return 2;
  adrenoc::Options options;
  options.opencl_library = values[2];
  options.cache_folder = values[3];
  try {
    Stepper stepper(values[1], options);
    expect(stepper.step(4) == 4, "a state begins as zeros");
    expect(stepper.step(4) == 6, "and goes on");
    adrenoc::trim_memory(ADRENOC_TRIM_CONSTANTS);
    expect(adrenoc::memory().evicted == 1, "the model is evicted");
    expect(stepper.step(1) == 4, "its state comes back with it");
    const std::vector<float> given(kNumbers, 8.0F);
    stepper.hold(&given);
    expect(stepper.step(1) == 5 && stepper.step(1) == 5, "what is bound is read at each run");
    stepper.hold(nullptr);
    expect(stepper.step(1) == 3.5F, "and then what the last run left");
    Stepper other(values[1], options);
    expect(other.step(2) == 2 && stepper.step(0) == 1.75F, "each model has its own");
    const Answer answer = answer_of([&] { stepper.model.bind_input(9, nullptr, 0); });
    expect(answer.status == ADRENOC_BAD_ARGUMENT, "there are two inputs");
    return 0;
  } catch (const adrenoc::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
