// How soon a run can end: who wants it to, and launches in pieces between which others get their
// turn.
#pragma once

#include <tvm/ffi/error.h>

#include <algorithm>
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
inline void end_if_cancelled() {
  const Cancelling* const heeded = CancellingScope::current();
  if (heeded != nullptr && heeded->is_asked()) {
    TVM_FFI_THROW(CancelledError) << "the call was cancelled";
  }
}

// Within a run, where it may end there.
inline void end_within_if_cancelled() {
  const Cancelling* const heeded = CancellingScope::current();
  if (heeded != nullptr && heeded->how().ends_within) end_if_cancelled();
}

[[nodiscard]] inline bool is_cancelled(const tvm::ffi::Error& error) {
  return error.kind() == "CancelledError";
}

// That by what it heeds alone, which holds in the virtual machine, too.
[[nodiscard]] inline double own_piece_limit_ms() {
  const Cancelling* const heeded = CancellingScope::current();
  return heeded == nullptr ? 0 : heeded->how().piece_ms;
}

inline std::atomic<double> limit_of_process_ms{0};

[[nodiscard]] inline double submission_limit_ms() { return limit_of_process_ms; }

// The most milliseconds of the device that this thread's run may take at once: by the limit of the
// process and by what it heeds; 0 for no limit.
[[nodiscard]] inline double piece_limit_ms() {
  const double of_process = submission_limit_ms();
  const double own = own_piece_limit_ms();
  return of_process > 0 && own > 0 ? std::min(of_process, own) : std::max(of_process, own);
}

// The most milliseconds of the device that a piece may take; 0, as at first, for no limit.
inline void set_submission_limit(double ms) { limit_of_process_ms = ms; }

// How a list was given.
struct Pieces {
  size_t count = 0;       // 0: it was not cut
  double longest_ms = 0;  // of one, with what the host takes to give it and to see its end
  double gap_ms = 0;      // the mean time from the end of one to the first launch of the next
};

// How fast times follow a device whose clock changes: longer ones at once, shorter ones slowly.
constexpr double kMostShrink = 0.9;
constexpr double kMostGrowth = 4;

inline double ms_between(std::chrono::steady_clock::time_point from,
                         std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// Decides after each launch of a list whether the piece ends there: by the times of the launches,
// which the first pass measures one by one, and later ones correct by what whole pieces take.
class Pacing {
 public:
  explicit Pacing(size_t launches) : launch_ms_(launches, -1) {}

  // Before the first launch; what the device still has to do is waited for.
  void begin(cl_command_queue queue) {
    ADRENOC_CL_CALL(clFinish, queue);
    pieces_ = {};
    gaps_ms_ = 0;
    first_ = 0;
    has_ended_ = false;
    begin_piece();
  }
  // After launch `done`: waits for the device where the next one would take the piece beyond
  // `limit_ms`. Whether it has waited.
  bool after(cl_command_queue queue, size_t done, double limit_ms) {
    if (has_ended_) {
      gaps_ms_ += ms_between(ended_, Clock::now());
      has_ended_ = false;
    }
    const size_t next = done + 1;
    const bool is_last = next == launch_ms_.size();
    piece_ms_ += std::max(launch_ms_[done], 0.0);
    // A launch whose time is not known is a piece of its own.
    const bool goes_on = !is_last && launch_ms_[done] >= 0 && launch_ms_[next] >= 0 &&
                         piece_ms_ + launch_ms_[next] <= limit_ms;
    if (goes_on) return false;
    end_piece(queue, next);
    return true;
  }
  // Ends the piece before launch `next`, which something else comes before.
  void end_piece(cl_command_queue queue, size_t next) {
    if (first_ == next) return;
    ADRENOC_CL_CALL(clFinish, queue);
    note_piece(next);
  }
  // A piece has ended that others may have come behind; the next one begins now.
  void begin_piece() {
    begun_ = Clock::now();
    piece_ms_ = 0;
  }

  [[nodiscard]] const Pieces& pieces() const { return pieces_; }
  // The launch that takes longest by itself, and its time.
  [[nodiscard]] size_t longest_launch() const {
    return static_cast<size_t>(std::max_element(launch_ms_.begin(), launch_ms_.end()) -
                               launch_ms_.begin());
  }
  [[nodiscard]] double ms_of(size_t launch) const { return launch_ms_[launch]; }

 private:
  using Clock = std::chrono::steady_clock;

  void note_piece(size_t end) {
    ended_ = Clock::now();
    has_ended_ = true;
    const double ms = ms_between(begun_, ended_);
    for (size_t i = first_; i < end; ++i) {
      if (launch_ms_[i] < 0) {
        launch_ms_[i] = ms;
      } else if (piece_ms_ > 0) {
        launch_ms_[i] *= std::min(kMostGrowth, std::max(kMostShrink, ms / piece_ms_));
      }
    }
    first_ = end;
    ++pieces_.count;
    pieces_.longest_ms = std::max(pieces_.longest_ms, ms);
    if (pieces_.count > 1) pieces_.gap_ms = gaps_ms_ / static_cast<double>(pieces_.count - 1);
  }

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
