// Kernels that pick the next token on the device and hand it to the next step.
#ifndef ADRENOC_NATIVE_GENERATE_SAMPLER_H_
#define ADRENOC_NATIVE_GENERATE_SAMPLER_H_

#include <dlpack/dlpack.h>

#include <cstdint>
#include <memory>
#include <string>

#include "launch/kernel.h"
#include "opencl/device.h"

namespace adrenoc_runtime {
namespace opencl {

// How tokens are picked.  A temperature of 0 takes the likeliest one.  `top_k` (0: all) keeps the
// likeliest tokens, and those that are as likely as the last of them; `top_p` (1: all) then the
// fewest likeliest whose probability reaches that.  The same seed picks the same tokens.
struct Sampling {
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 1;
  uint64_t seed = 0;

  [[nodiscard]] bool is_greedy() const { return temperature <= 0; }
};

// Throws ValueError for numbers that mean nothing.
void check_sampling(const Sampling& sampling);

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

  // Launches one kernel, which feeds the token that the model has picked.
  void feed(const StepTensors& step);
  // Launches one kernel, which draws a token from the logits.
  void pick(const StepTensors& step);

 private:
  struct Made {
    std::string types;  // that it was built for
    std::unique_ptr<Kernel> kernel;
  };
  [[nodiscard]] Kernel& kernel(Made* made, const char* name, const std::string& macros,
                               size_t arguments);

  Device& device_;
  size_t group_;  // work-items that draw a token together
  std::shared_ptr<Storage> settings_;
  Made feed_;
  Made pick_;
};

}  // namespace opencl
}  // namespace adrenoc_runtime

#endif  // ADRENOC_NATIVE_GENERATE_SAMPLER_H_
