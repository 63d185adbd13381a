// How soon a run can end: who wants it to, and launches in pieces between which others get their
// turn.
#pragma once

#include <tvm/ffi/error.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/threads.h"
#include "opencl/cl_api.h"

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

// The most milliseconds of the device that a piece may take; 0, as at first, for no limit.
void set_submission_limit(double ms);
[[nodiscard]] double submission_limit_ms();

// How a list was given.
struct Pieces {
  size_t count = 0;       // 0: it was not cut
  double longest_ms = 0;  // of one, with what the host takes to give it and to see its end
  double gap_ms = 0;      // the mean time from the end of one to the first launch of the next
};

// Decides after each launch of a list whether the piece ends there: by the times of the launches,
// which the first pass measures one by one, and later ones correct by what whole pieces take.
class Pacing {
 public:
  explicit Pacing(size_t launches) : launch_ms_(launches, -1) {}

  // Before the first launch; what the device still has to do is waited for.
  void begin(cl_command_queue queue);
  // After launch `done`: waits for the device where the next one would take the piece beyond
  // `limit_ms`. Whether it has waited.
  bool after(cl_command_queue queue, size_t done, double limit_ms);
  // Ends the piece before launch `next`, which something else comes before.
  void end_piece(cl_command_queue queue, size_t next);
  // A piece has ended that others may have come behind; the next one begins now.
  void begin_piece();

  [[nodiscard]] const Pieces& pieces() const { return pieces_; }
  // The launch that takes longest by itself, and its time.
  [[nodiscard]] size_t longest_launch() const;
  [[nodiscard]] double ms_of(size_t launch) const { return launch_ms_[launch]; }

 private:
  using Clock = std::chrono::steady_clock;

  void note_piece(size_t end);

  std::vector<double> launch_ms_;  // below 0: not known
  size_t first_ = 0;               // of the piece
  double piece_ms_ = 0;            // that its launches are reckoned to take
  Clock::time_point begun_;
  Clock::time_point ended_;
  bool has_ended_ = false;
  double gaps_ms_ = 0;
  Pieces pieces_;
};

}  // namespace adrenoc_runtime::opencl
