// A model with host memory bound to all that it reads and writes, for programs of the tests.
#ifndef ADRENOC_TESTS_HELD_MODEL_H_
#define ADRENOC_TESTS_HELD_MODEL_H_

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "adrenoc.hpp"

using Bytes = std::vector<std::vector<char>>;

inline void expect(bool holds, const std::string& claim) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s (last error: %s)\n", claim.c_str(), adrenoc_last_error());
  std::exit(1);
}

// How a call ended, and what its error said.
struct Answer {
  adrenoc_status status = ADRENOC_OK;
  std::string text;
};

template <typename Work>
Answer answer_of(Work work) {
  try {
    work();
  } catch (const adrenoc::Error& error) {
    return {error.status(), error.what()};
  }
  return {};
}

class HeldModel {
 public:
  HeldModel(const std::string& path, const adrenoc::Options& options) : model(path, options) {
    for (const adrenoc::Tensor& tensor : model.inputs()) inputs_.emplace_back(tensor.bytes);
    for (const adrenoc::Tensor& tensor : model.outputs()) outputs_.emplace_back(tensor.bytes);
    for (size_t i = 0; i < inputs_.size(); ++i) model.bind_input(i, inputs_[i]);
    for (size_t i = 0; i < outputs_.size(); ++i) model.bind_output(i, outputs_[i]);
  }
  HeldModel(const HeldModel&) = delete;
  HeldModel& operator=(const HeldModel&) = delete;

  // Runs on floats that `seed` draws, and gives the outputs.
  const Bytes& run(unsigned seed) {
    draw(seed);
    model.run();
    return outputs_;
  }
  // The bound inputs are others from now on, and the outputs none.
  void draw(unsigned seed) {
    std::mt19937 random(seed);
    for (std::vector<char>& input : inputs_) {
      for (size_t at = 0; at + sizeof(float) <= input.size(); at += sizeof(float)) {
        const float value = static_cast<float>(random()) / 4294967296.0F - 0.5F;
        std::memcpy(&input[at], &value, sizeof(value));
      }
    }
    for (std::vector<char>& output : outputs_) std::memset(output.data(), 0x5a, output.size());
  }
  [[nodiscard]] const Bytes& inputs() const { return inputs_; }
  [[nodiscard]] const Bytes& outputs() const { return outputs_; }

 private:
  Bytes inputs_;
  Bytes outputs_;

 public:
  adrenoc::Model model;  // goes before what is bound to it
};

// What a model of its own computes of each seed below `seeds`, with no other model in the process.
inline std::vector<Bytes> run_alone(const std::string& path, const adrenoc::Options& options,
                                    unsigned seeds) {
  HeldModel alone(path, options);
  std::vector<Bytes> outputs;
  for (unsigned seed = 0; seed < seeds; ++seed) outputs.push_back(alone.run(seed));
  return outputs;
}

inline long resident_kib() {
  std::ifstream status("/proc/self/statm");
  long total = 0;
  long resident = 0;
  status >> total >> resident;
  return resident * 4;
}

#endif  // ADRENOC_TESTS_HELD_MODEL_H_
