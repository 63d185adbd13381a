// What `side_by_side` promises, with more threads than there are cores; prints what does not hold.
#include "base/threads.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

constexpr size_t kCount = 64;
constexpr size_t kThreads = 8;

int wrong = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::printf("%s\n", what.c_str());
  ++wrong;
}

void each_is_done_once() {
  std::array<std::atomic<int>, kCount> times{};
  adrenoc_runtime::side_by_side(kCount, kThreads, [&](size_t i) { ++times[i]; });
  for (size_t i = 0; i < kCount; ++i) expect(times[i] == 1, "not once: " + std::to_string(i));
}

// What fails on another thread succeeds on the caller's, where nothing runs beside it.
void those_that_fail_are_done_alone() {
  const auto caller = std::this_thread::get_id();
  std::array<std::atomic<int>, kCount> done{};
  adrenoc_runtime::side_by_side(kCount, kThreads, [&](size_t i) {
    if (std::this_thread::get_id() != caller) throw std::runtime_error("no memory");
    ++done[i];
  });
  for (size_t i = 0; i < kCount; ++i) expect(done[i] == 1, "not once: " + std::to_string(i));
}

void the_first_failure_is_thrown() {
  for (int turn = 0; turn < 200; ++turn) {
    std::string said;
    try {
      adrenoc_runtime::side_by_side(kCount, kThreads, [](size_t i) {
        if (i < 20) return;
        // Later ones fail sooner.
        for (size_t wait = i; wait < 24; ++wait) std::this_thread::yield();
        throw std::runtime_error(std::to_string(i));
      });
    } catch (const std::runtime_error& error) {
      said = error.what();
    }
    expect(said == "20", "thrown: \"" + said + "\"");
  }
}

void nothing_and_one() {
  adrenoc_runtime::side_by_side(0, kThreads, [](size_t) { expect(false, "work of none"); });
  int times = 0;
  adrenoc_runtime::side_by_side(1, 1, [&](size_t) { ++times; });
  expect(times == 1, "one is not done once");
  using adrenoc_runtime::build_threads;
  expect(build_threads(0) == 1 && build_threads(1) == 1, "threads of one");
  expect(build_threads(1000) <= std::thread::hardware_concurrency(), "too many threads");
}

}  // namespace

int main() {
  each_is_done_once();
  those_that_fail_are_done_alone();
  the_first_failure_is_thrown();
  nothing_and_one();
  return wrong == 0 ? 0 : 1;
}
