#include "trials/watchdog.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>

namespace adrenoc_runtime {

Watchdog::Watchdog(double limit_s) {
  if (limit_s <= 0) return;
  thread_ = std::thread([this, limit_s] {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto limit = std::chrono::duration<double>(limit_s);
    // SIGKILL: no handler and no destructor of a driver may wait for what hangs.
    if (!ended_.wait_for(lock, limit, [this] { return is_over_; })) kill(getpid(), SIGKILL);
  });
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

}  // namespace adrenoc_runtime
