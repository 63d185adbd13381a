// Kernels that pick the next token on the device and hand it to the next step.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launch/kernel.h"
#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

// How tokens are picked.  A temperature of 0 takes the likeliest one.  `top_k` (0: all) keeps the
// likeliest tokens, and those that are as likely as the last of them; `top_p` (1: all) of these the
// fewest likeliest whose probability reaches that, `min_p` (0: all) those that are at least so
// likely, the likeliest being 1.  The same seed picks the same tokens.
//
// Before that logits are changed, in this order: `bias` is added to a token's; where the context
// has it, a positive one is divided by `repetition_penalty` and a negative one multiplied; of a
// token that was made so many times, `frequency_penalty` as often and `presence_penalty` once are
// taken away.
struct Sampling {
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::vector<std::pair<int64_t, double>> bias{};  // tokens, and what is added
  uint64_t seed = 0;

  [[nodiscard]] bool is_greedy() const { return temperature <= 0; }
  [[nodiscard]] bool changes_logits() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0 ||
           !bias.empty();
  }
};

// Throws ValueError for numbers that mean nothing, and tokens that a vocabulary has not.
void check_sampling(const Sampling& sampling, int64_t vocabulary);

// What the last kernels of a step read and write, of one device.  `ids` is what the next step reads
// its token from, `past` how many tokens the caches hold: both are changed.
struct StepTensors {
  const DLTensor* picked;  // the likeliest token, by the model itself
  const DLTensor* logits;
  const DLTensor* ids;
  const DLTensor* past;
};

// Its kernels and what they read has to live as long as whatever repeats the launches.
class Sampler {
 public:
  explicit Sampler(Device& device);

  // What later launches of pick() go by, those of recordings too.
  void set(const Sampling& sampling);
  // What later launches of change() go by: the bias of each of `vocabulary` tokens, and which
  // tokens the context has before the first is made.  Then allow() has to be called.
  void set_row(const Sampling& sampling, const std::vector<int64_t>& context, int64_t vocabulary);
  // Which tokens may come next: a bit each, of the first the lowest.
  void allow(const std::vector<uint32_t>& tokens);

  // Launches one kernel, which feeds the token that the model has picked.
  void feed(const StepTensors& step);
  // Launches one kernel, which draws a token from the logits.
  void pick(const StepTensors& step);
  // Launches two kernels: one counts the step's token and changes the logits, one draws from those.
  void change_and_pick(const StepTensors& step);

 private:
  struct Made {
    std::string types;  // that it was built for
    std::unique_ptr<Kernel> kernel;
  };
  // What is known of each token.
  struct Row {
    int64_t vocabulary = 0;
    std::shared_ptr<Storage> bias;
    std::shared_ptr<Storage> seen;     // how often it was made; the highest bit: the prompt has it
    std::shared_ptr<Storage> allowed;  // a bit each
    std::shared_ptr<Storage> changed;  // logits
  };
  [[nodiscard]] Kernel& kernel(Made* made, const char* name, const std::string& macros,
                               const std::string& body, size_t arguments);
  void launch_pick(Made* made, const StepTensors& step, const KernelArgument& logits, bool halves);
  void write(const Storage& to, const void* data, size_t offset, size_t bytes);

  Device& device_;
  size_t group_;  // work-items that draw a token together
  std::shared_ptr<Storage> settings_;
  Row row_;
  Made feed_;
  Made pick_;
  Made change_;
  Made pick_changed_;
};

}  // namespace adrenoc_runtime::opencl
