// Whether models may compute: those of an app that nobody sees leave the GPU alone.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/failure.h"
#include "base/stopwatch.h"

namespace adrenoc_runtime {

class Pause {
 public:
  [[nodiscard]] static Pause& global() {
    // Never destroyed: runs may go on as the process ends.
    static auto* instance = new Pause();
    return *instance;
  }

  // Nothing begins any more.  Waits for what goes on, at most so long and without limit if that is
  // negative; whether all has ended.
  [[nodiscard]] bool begin(int64_t timeout_ms) {
    std::unique_lock<std::mutex> lock(mutex_);
    is_on_ = true;
    const auto is_idle = [this] { return turns_ == 0 || !is_on_; };
    if (timeout_ms < 0) {
      changed_.wait(lock, is_idle);
    } else {
      const std::chrono::milliseconds limit(std::min(timeout_ms, kLongestWaitMs));
      (void)changed_.wait_for(lock, limit, is_idle);
    }
    return turns_ == 0;
  }
  void end() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_on_ = false;
    changed_.notify_all();
  }
  [[nodiscard]] bool is_on() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return is_on_;
  }

  // Of one that computes.  Throws Failure (not ready) while there is a pause.
  class Turn {
   public:
    Turn() {
      Pause& pause = global();
      const std::lock_guard<std::mutex> lock(pause.mutex_);
      if (pause.is_on_) {
        throw Failure(ADRENOC_NOT_READY, "models are paused: adrenoc_resume lets them compute");
      }
      ++pause.turns_;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      Pause& pause = global();
      const std::lock_guard<std::mutex> lock(pause.mutex_);
      if (--pause.turns_ == 0) pause.changed_.notify_all();
    }
  };

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_on_ = false;
  size_t turns_ = 0;
};

}  // namespace adrenoc_runtime
