// Whether somebody wants the run of this thread to end, and how soon it can.
#pragma once

#include <tvm/ffi/error.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "base/thread_scope.h"

namespace adrenoc_runtime::opencl {

// How a run may end before its end.
struct Pieceable {
  bool ends_within = false;  // between its launches; else it ends as a whole
  double piece_ms = 0;       // of the device at once, so that it ends soon; 0 for no limit
};

// What ends one call alone: somebody, once `asked` is not 0, or the clock.
struct Ending {
  using Clock = std::chrono::steady_clock;

  const std::atomic<uint64_t>* asked = nullptr;
  std::optional<Clock::time_point> deadline{};

  [[nodiscard]] bool is_late() const { return deadline.has_value() && Clock::now() >= *deadline; }
  [[nodiscard]] bool is_asked() const { return (asked != nullptr && *asked != 0) || is_late(); }
};

// A call that ends once `asked` counts more than it did before the call, or by its `ending`.
class Cancelling {
 public:
  Cancelling(const std::atomic<uint64_t>& asked, uint64_t before, Pieceable how = {},
             const Ending& ending = {})
      : asked_(asked), before_(before), how_(how), ending_(ending) {}

  [[nodiscard]] bool is_asked() const { return asked_ != before_ || ending_.is_asked(); }
  [[nodiscard]] const Pieceable& how() const { return how_; }

 private:
  const std::atomic<uint64_t>& asked_;
  const uint64_t before_;
  const Pieceable how_;
  const Ending ending_;
};
// What runs in this thread heeds it.
using CancellingScope = ThreadScope<const Cancelling>;

// Between runs.  Throws CancelledError, of ffi, since it passes through TVM's virtual machine.
void end_if_cancelled();
// Within a run, where it may end there.
void end_within_if_cancelled();
[[nodiscard]] bool is_cancelled(const tvm::ffi::Error& error);

// The most milliseconds of the device that this thread's run may take at once: by the limit of the
// process and by what it heeds; 0 for no limit.
[[nodiscard]] double piece_limit_ms();
// That by what it heeds alone, which holds in the virtual machine, too.
[[nodiscard]] double own_piece_limit_ms();

}  // namespace adrenoc_runtime::opencl
