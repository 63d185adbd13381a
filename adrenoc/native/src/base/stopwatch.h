// Milliseconds of wall clock since it was made.
#pragma once

#include <chrono>
#include <cstdint>

namespace adrenoc_runtime {

// Longer waits would overflow the clock.
constexpr int64_t kLongestWaitMs = int64_t{1000} * 60 * 60 * 24 * 365;

class Stopwatch {
 public:
  [[nodiscard]] double ms() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace adrenoc_runtime
