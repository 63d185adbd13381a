// What the states of a decoder hold, as bytes and as copies on the device: of caches rows in use
// alone.
#pragma once

#include <dlpack/dlpack.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

struct ContextFill {
  int64_t rows = 0;
  int64_t length = 0;
  std::optional<int64_t> pending;  // made, but not in the caches
  std::vector<int64_t> taken{};    // the tokens that the caches hold
};

// The memory that a decoder keeps: caches have an axis of rows, a recurrent one changes as a whole.
struct KeptState {
  const DLTensor* tensor;
  bool is_recurrent;
};

// The sentence of an error: there is no room for `count` more.
[[nodiscard]] std::string context_full(int64_t length, int64_t rows, int64_t count);

// Fills states with zeros.
void clear_states(const std::vector<const DLTensor*>& states);

// What save_context gives.
[[nodiscard]] size_t saved_bytes(const std::vector<KeptState>& states, const ContextFill& fill);
// Of caches, with an axis of `rows`, what the first rows hold; other states whole; and the tokens
// that made them.
[[nodiscard]] std::string save_context(const std::vector<KeptState>& states,
                                       const ContextFill& fill);

// Writes what save_context gave into states of the same model, whose context may be of another
// length.  Throws ValueError for anything else, before it writes.
[[nodiscard]] ContextFill restore_context(const std::string& saved,
                                          const std::vector<KeptState>& states, int64_t rows);

// What some states held after so many tokens, on the device, to go back to: one that every token
// changes as a whole cannot forget one, so it is put back to what it was some tokens before, and
// those are taken in again.  The last two: steps that run ahead may have made the younger one of
// tokens that are taken back.
class Checkpoints {
 public:
  explicit Checkpoints(Device& device) : device_(device) {}

  // Copies the states, of buffers, in the queue; they hold `length` tokens then.
  void take(const std::vector<const DLTensor*>& states, int64_t length);
  // Puts the states back to the youngest of at most `length` tokens, or to zeros; of how many it
  // is.
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
