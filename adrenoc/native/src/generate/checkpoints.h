// What some states held after so many tokens, on the device, to go back to.
//
// A state that every token changes as a whole cannot forget one: it is put back to what it was
// some tokens before, and those are taken in again.
#pragma once

#include <dlpack/dlpack.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

// The last two: steps that run ahead may have made the younger one of tokens that are taken back.
class Checkpoints {
 public:
  explicit Checkpoints(Device& device) : device_(device) {}

  // Copies the states, of buffers, in the queue; they hold `length` tokens then.
  void take(const std::vector<const DLTensor*>& states, int64_t length);
  // Puts the states back to the youngest of at most `length` tokens, or to zeros; of how many it is.
  [[nodiscard]] int64_t put_back(const std::vector<const DLTensor*>& states, int64_t length);
  // Forgets those of more tokens.
  void forget_beyond(int64_t length);
  // Gives the memory back too.
  void forget();

 private:
  struct Checkpoint {
    int64_t length = 0;  // 0 of none
    std::vector<std::shared_ptr<Storage>> copies;
  };

  Device& device_;
  std::array<Checkpoint, 2> kept_;
};

}  // namespace adrenoc_runtime::opencl
