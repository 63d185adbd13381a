// What threads do side by side, and what each has open.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

namespace adrenoc_runtime {

// Opens something for this thread, or nothing, for as long as it lives.
template <typename T>
class ThreadScope {
 public:
  explicit ThreadScope(T* opened) : before_(std::exchange(current_, opened)) {}
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;
  ~ThreadScope() { current_ = before_; }

  // What this thread has open, or null.
  [[nodiscard]] static T* current() { return current_; }

 private:
  static inline thread_local T* current_ = nullptr;

  T* const before_;
};

// How many threads build `count` kernels: at most one a core, and as many compilers as the memory
// that is free now holds.
[[nodiscard]] size_t build_threads(size_t count);

// Does `work` for 0 to count - 1, begun in that order, on at most `threads` threads of which one is
// the caller's.  Of work that throws, nothing later is begun; it is done once more, alone, since
// drivers fail side by side for want of memory where one after the other succeeds, and what
// it throws then is thrown: always for the first that fails, however threads happen to run.
void side_by_side(size_t count, size_t threads, const std::function<void(size_t)>& work);

}  // namespace adrenoc_runtime
