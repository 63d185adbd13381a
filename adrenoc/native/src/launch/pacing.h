// Launch lists that are given to the device in pieces, so that others get their turn in between.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "opencl/cl_api.h"

namespace adrenoc_runtime::opencl {

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
  // After launch `done`: waits for the device where the next one would take the piece beyond `limit_ms`.
  // Whether it has waited.
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
