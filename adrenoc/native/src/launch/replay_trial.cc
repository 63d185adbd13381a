#include "launch/replay_trial.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <utility>

namespace adrenoc_runtime::opencl {
namespace {

constexpr size_t kRunsOfEach = 2;

// What a recording has to be slower by, in both, to lose: less is noise.
constexpr double kSlowerFactor = 1.1;
constexpr double kSlowerMs = 0.05;

std::string ms_text(double ms) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f ms", ms);
  return text;
}

}  // namespace

Trial::Trial(Replay& kept, std::vector<std::unique_ptr<Replay>> recorded) {
  const double unknown = std::numeric_limits<double>::infinity();
  ways_.push_back({&kept, nullptr, unknown, ""});
  for (std::unique_ptr<Replay>& replay : recorded) {
    Replay* plain = replay.get();
    ways_.push_back({plain, std::move(replay), unknown, ""});
  }
}

bool Trial::is_under_way() const { return runs_ < ways_.size() * kRunsOfEach; }

const char* Trial::run(QueueLock& queue) {
  Way& way = ways_[runs_ / kRunsOfEach];
  ADRENOC_CL_CALL(clFinish, queue.get());
  const auto start = std::chrono::steady_clock::now();
  try {
    way.replay->enqueue(queue);
    ADRENOC_CL_CALL(clFinish, queue.get());
  } catch (const tvm::ffi::Error& error) {
    if (way.owned == nullptr) throw;
    way.failure = error.message();
    way.best_ms = std::numeric_limits<double>::infinity();
    runs_ = (runs_ / kRunsOfEach + 1) * kRunsOfEach;
    return nullptr;
  }
  const auto taken = std::chrono::steady_clock::now() - start;
  way.best_ms =
      std::min(way.best_ms, std::chrono::duration<double, std::milli>(taken).count());
  ++runs_;
  return way.replay->name();
}

std::unique_ptr<Replay> Trial::take_best(std::string* reason) {
  const auto best =
      std::min_element(ways_.begin() + 1, ways_.end(),
                       [](const Way& a, const Way& b) { return a.best_ms < b.best_ms; });
  const double kept_ms = ways_.front().best_ms;
  reason->clear();
  if (best->failure.empty() && best->best_ms <= kept_ms * kSlowerFactor + kSlowerMs) {
    return std::move(best->owned);
  }
  for (size_t i = 1; i < ways_.size(); ++i) {
    if (i > 1) *reason += "; ";
    *reason += std::string(ways_[i].replay->name()) + ": " +
               (ways_[i].failure.empty() ? "a run took " + ms_text(ways_[i].best_ms) +
                                               ", by plain launches " + ms_text(kept_ms)
                                         : ways_[i].failure);
  }
  return nullptr;
}

}  // namespace adrenoc_runtime::opencl
