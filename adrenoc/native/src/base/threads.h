// What threads do side by side, and what each has open.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

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

constexpr size_t kMaxThreads = 8;
// What a compiler of OpenCL C takes for one kernel, generously.
constexpr unsigned long long kBytesOfOneBuild = 128ULL << 20;

// What the system says that programs can still take; 0 where it does not say.
inline unsigned long long available_bytes() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/meminfo", "re"),
                                                             std::fclose);
  std::array<char, 256> line{};
  while (file != nullptr && std::fgets(line.data(), line.size(), file.get()) != nullptr) {
    unsigned long long kib = 0;
    if (std::sscanf(line.data(), "MemAvailable: %llu kB", &kib) == 1) return kib << 10;
  }
  return 0;
}

// How many threads build `count` kernels: at most one a core, and as many compilers as the memory
// that is free now holds.
[[nodiscard]] inline size_t build_threads(size_t count) {
  const size_t cores = std::max(1U, std::thread::hardware_concurrency());
  size_t threads = std::min({std::max<size_t>(count, 1), cores, kMaxThreads});
  if (const unsigned long long bytes = available_bytes(); bytes != 0) {
    threads =
        static_cast<size_t>(std::clamp<unsigned long long>(bytes / kBytesOfOneBuild, 1, threads));
  }
  return threads;
}

// Does `work` for 0 to count - 1, begun in that order, on at most `threads` threads of which one is
// the caller's.  Of work that throws, nothing later is begun; it is done once more, alone, since
// drivers fail side by side for want of memory where one after the other succeeds, and what
// it throws then is thrown: always for the first that fails, however threads happen to run.
inline void side_by_side(size_t count, size_t threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  std::vector<char> done(count, 0);  // not bool: each is written by a thread of its own
  const auto take = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        work(i);
        done[i] = 1;
      } catch (...) {
        next = count;  // all before this one have begun, and end
      }
    }
  };
  if (threads > 1) {
    std::vector<std::future<void>> others;
    try {
      while (others.size() + 1 < threads) others.push_back(std::async(std::launch::async, take));
    } catch (const std::system_error&) {
      // The system gives no more threads: those that are there do.
    }
    take();
    for (std::future<void>& other : others) other.get();
  }
  for (size_t i = 0; i < count; ++i) {
    if (!done[i]) work(i);
  }
}

}  // namespace adrenoc_runtime
