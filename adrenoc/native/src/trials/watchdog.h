// Ends this process where something takes too long that nothing else can end: a kernel that hangs,
// a compiler that does not come back.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace adrenoc_runtime {

class Watchdog {
 public:
  // Kills the process after `limit_s` unless it is destroyed before; 0 is no limit.
  explicit Watchdog(double limit_s);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace adrenoc_runtime
