// Whether models may compute: those of an app that nobody sees leave the GPU alone.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace adrenoc_runtime {

class Pause {
 public:
  [[nodiscard]] static Pause& global();

  // Nothing begins any more.  Waits for what goes on, at most so long and without limit if that is
  // negative; whether all has ended.
  [[nodiscard]] bool begin(int64_t timeout_ms);
  void end();
  [[nodiscard]] bool is_on();

  // Of one that computes.  Throws Failure (not ready) while there is a pause.
  class Turn {
   public:
    Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn();
  };

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_on_ = false;
  size_t turns_ = 0;
};

}  // namespace adrenoc_runtime
