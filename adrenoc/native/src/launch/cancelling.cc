#include "launch/cancelling.h"

#include <algorithm>
#include <atomic>

namespace adrenoc_runtime::opencl {
namespace {

std::atomic<double> limit_ms{0};

// How fast times follow a device whose clock changes: longer ones at once, shorter ones slowly.
constexpr double kMostShrink = 0.9;
constexpr double kMostGrowth = 4;

double ms_between(std::chrono::steady_clock::time_point from,
                  std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

void end_if_cancelled() {
  const Cancelling* const heeded = CancellingScope::current();
  if (heeded != nullptr && heeded->is_asked()) {
    TVM_FFI_THROW(CancelledError) << "the call was cancelled";
  }
}

void end_within_if_cancelled() {
  const Cancelling* const heeded = CancellingScope::current();
  if (heeded != nullptr && heeded->how().ends_within) end_if_cancelled();
}

bool is_cancelled(const tvm::ffi::Error& error) { return error.kind() == "CancelledError"; }

double piece_limit_ms() {
  const double of_process = submission_limit_ms();
  const double own = own_piece_limit_ms();
  return of_process > 0 && own > 0 ? std::min(of_process, own) : std::max(of_process, own);
}

double own_piece_limit_ms() {
  const Cancelling* const heeded = CancellingScope::current();
  return heeded == nullptr ? 0 : heeded->how().piece_ms;
}

void set_submission_limit(double ms) { limit_ms = ms; }

double submission_limit_ms() { return limit_ms; }

void Pacing::begin(cl_command_queue queue) {
  ADRENOC_CL_CALL(clFinish, queue);
  pieces_ = {};
  gaps_ms_ = 0;
  first_ = 0;
  has_ended_ = false;
  begin_piece();
}

void Pacing::begin_piece() {
  begun_ = Clock::now();
  piece_ms_ = 0;
}

bool Pacing::after(cl_command_queue queue, size_t done, double limit_ms) {
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

void Pacing::end_piece(cl_command_queue queue, size_t next) {
  if (first_ == next) return;
  ADRENOC_CL_CALL(clFinish, queue);
  note_piece(next);
}

void Pacing::note_piece(size_t end) {
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

size_t Pacing::longest_launch() const {
  return static_cast<size_t>(std::max_element(launch_ms_.begin(), launch_ms_.end()) -
                             launch_ms_.begin());
}

}  // namespace adrenoc_runtime::opencl
