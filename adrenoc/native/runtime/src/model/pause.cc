#include "model/pause.h"

#include <algorithm>
#include <chrono>

#include "base/failure.h"

namespace adrenoc_runtime {

Pause& Pause::global() {
  // Never destroyed: runs may go on as the process ends.
  static auto* instance = new Pause();
  return *instance;
}

bool Pause::begin(int64_t timeout_ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  is_on_ = true;
  const auto is_idle = [this] { return turns_ == 0 || !is_on_; };
  if (timeout_ms < 0) {
    changed_.wait(lock, is_idle);
  } else {
    // Longer waits would overflow the clock.
    constexpr int64_t longest_ms = int64_t{1000} * 60 * 60 * 24 * 365;
    const std::chrono::milliseconds limit(std::min(timeout_ms, longest_ms));
    (void)changed_.wait_for(lock, limit, is_idle);
  }
  return turns_ == 0;
}

void Pause::end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_on_ = false;
  changed_.notify_all();
}

bool Pause::is_on() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return is_on_;
}

Pause::Turn::Turn() {
  Pause& pause = global();
  const std::lock_guard<std::mutex> lock(pause.mutex_);
  if (pause.is_on_) {
    throw Failure(ADRENOC_NOT_READY, "models are paused: adrenoc_resume lets them compute");
  }
  ++pause.turns_;
}

Pause::Turn::~Turn() {
  Pause& pause = global();
  const std::lock_guard<std::mutex> lock(pause.mutex_);
  if (--pause.turns_ == 0) pause.changed_.notify_all();
}

}  // namespace adrenoc_runtime
