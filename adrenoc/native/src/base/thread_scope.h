// What a thread has open of a kind.
#pragma once

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

}  // namespace adrenoc_runtime
