// Milliseconds of wall clock since it was made.
#ifndef ADRENOC_NATIVE_BASE_STOPWATCH_H_
#define ADRENOC_NATIVE_BASE_STOPWATCH_H_

#include <chrono>

namespace adrenoc_runtime {

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

#endif  // ADRENOC_NATIVE_BASE_STOPWATCH_H_
