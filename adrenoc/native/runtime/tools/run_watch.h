// Ends a program whose device does not: a driver that hangs keeps its caller for ever.
#pragma once

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

// Has a limit for each step, in seconds; 0 for none.
class Watch {
 public:
  Watch(long limit_s, int code) : limit_s_(limit_s), code_(code) {
    if (limit_s_ > 0) thread_ = std::thread([this] { watch(); });
  }
  ~Watch() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_done_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  // What is begun now, for the sentence of one that does not end; the step before has ended.
  void begin(const char* step) {
    const std::lock_guard<std::mutex> lock(mutex_);
    step_ = step;
    end_ = Clock::now() + std::chrono::seconds(limit_s_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void watch() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!is_done_ && Clock::now() < end_) changed_.wait_until(lock, end_);
    if (is_done_) return;
    std::fprintf(stderr,
                 "adrenoc_run: %s did not end within %ld s: the device or its driver hangs; "
                 "--timeout SECONDS waits longer\n",
                 step_.c_str(), limit_s_);
    // Nothing is cleaned up: that would wait for the device, too.
    _exit(code_);
  }

  const long limit_s_;
  const int code_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_done_ = false;
  std::string step_ = "the start";
  Clock::time_point end_ = Clock::now() + std::chrono::seconds(limit_s_);
  std::thread thread_;
};
