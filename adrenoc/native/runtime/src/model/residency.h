// What holds over all models of the process: which of them have memory of devices and who gives
// some back, and whether they may compute.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/failure.h"
#include "base/stopwatch.h"
#include "opencl/device.h"

namespace adrenoc_runtime {

// One that holds memory of a device.
class Resident {
 public:
  enum class Part {
    kBetween,    // what lies between launches; its next run notes them anew
    kConstants,  // and constants, inputs and a decoder's context; its next run moves them back
  };

  virtual ~Resident() = default;

  // Gives the part back, unless it is at work; whether it did.  With `owes` one that is at work
  // does so when it has ended.
  virtual bool give_up(Part part, bool owes) = 0;
  [[nodiscard]] virtual bool has_constants() const = 0;
};

class Residency {
 public:
  [[nodiscard]] static Residency& global() {
    // Never destroyed: models may outlive what ends with the process.
    static auto* instance = new Residency();
    return *instance;
  }

  void add(Resident* one) {
    const std::lock_guard<std::mutex> lock(mutex_);
    by_use_.push_back(one);
  }
  // Returns when nobody asks it for memory any more.
  void remove(const Resident* one) {
    const std::lock_guard<std::mutex> lock(mutex_);
    by_use_.erase(std::remove(by_use_.begin(), by_use_.end(), one), by_use_.end());
  }

  // The most bytes that all together hold between runs; 0 for no limit.
  void set_budget(uint64_t bytes) {
    {
      const std::lock_guard<std::mutex> lock(facts_mutex_);
      facts_.budget_bytes = bytes;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes != 0) shrink_locked(nullptr, bytes);
  }
  [[nodiscard]] uint64_t budget() {
    const std::lock_guard<std::mutex> lock(facts_mutex_);
    return facts_.budget_bytes;
  }

  // `user` is used now, and will take so many bytes more: those that were used longest ago give up
  // what is beyond the budget.  Others may run meanwhile; they keep what they have.
  void make_room(const Resident* user, uint64_t bytes) {
    const uint64_t most = budget();
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find(by_use_.begin(), by_use_.end(), user);
    if (found != by_use_.end()) std::rotate(found, found + 1, by_use_.end());
    if (most != 0) shrink_locked(user, most - std::min(most, bytes));
  }
  // All but `user` give up what they can, since the device is full.
  void empty_for(const Resident* user) {
    const std::lock_guard<std::mutex> lock(mutex_);
    shrink_locked(user, 0);
  }
  // All give up this part, now or when what they do has ended.
  void trim(Resident::Part part) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Resident* one : by_use_) (void)one->give_up(part, true);
    opencl::release_all_pools();
  }

  void note_eviction() {
    const std::lock_guard<std::mutex> lock(facts_mutex_);
    ++facts_.evictions;
  }
  void note_return(double ms) {
    const std::lock_guard<std::mutex> lock(facts_mutex_);
    ++facts_.returns;
    facts_.return_ms += ms;
  }

  struct Facts {
    uint32_t models = 0;
    uint32_t evicted = 0;  // of these: without constants now
    uint64_t budget_bytes = 0;
    uint64_t evictions = 0;
    uint64_t returns = 0;
    double return_ms = 0;  // of all returns
  };
  [[nodiscard]] Facts facts() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::lock_guard<std::mutex> facts_lock(facts_mutex_);
    Facts told = facts_;
    told.models = static_cast<uint32_t>(by_use_.size());
    told.evicted = static_cast<uint32_t>(std::count_if(
        by_use_.begin(), by_use_.end(), [](const Resident* one) { return !one->has_constants(); }));
    return told;
  }

 private:
  void shrink_locked(const Resident* user, uint64_t most_bytes) {
    const auto fits = [most_bytes] { return opencl::held_bytes().total() <= most_bytes; };
    if (fits()) return;
    opencl::release_all_pools();
    // What comes back by a run of launches first, of all; what has to be moved again last.
    for (const Resident::Part part : {Resident::Part::kBetween, Resident::Part::kConstants}) {
      for (Resident* one : by_use_) {
        if (fits()) return;
        if (one != user && one->give_up(part, false)) opencl::release_all_pools();
      }
    }
  }

  std::mutex mutex_;
  std::vector<Resident*> by_use_;  // the one that was used longest ago comes first
  std::mutex facts_mutex_;         // for those who hold a model's lock, under mutex_ or not
  Facts facts_;
};

class Pause {
 public:
  [[nodiscard]] static Pause& global() {
    // Never destroyed: runs may go on as the process ends.
    static auto* instance = new Pause();
    return *instance;
  }

  // Nothing begins any more.  Waits for what goes on, at most so long and without limit if that is
  // negative; whether all has ended.
  [[nodiscard]] bool begin(int64_t timeout_ms) {
    std::unique_lock<std::mutex> lock(mutex_);
    is_on_ = true;
    const auto is_idle = [this] { return turns_ == 0 || !is_on_; };
    if (timeout_ms < 0) {
      changed_.wait(lock, is_idle);
    } else {
      const std::chrono::milliseconds limit(std::min(timeout_ms, kLongestWaitMs));
      (void)changed_.wait_for(lock, limit, is_idle);
    }
    return turns_ == 0;
  }
  void end() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_on_ = false;
    changed_.notify_all();
  }
  [[nodiscard]] bool is_on() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return is_on_;
  }

  // Of one that computes.  Throws Failure (not ready) while there is a pause.
  class Turn {
   public:
    Turn() {
      Pause& pause = global();
      const std::lock_guard<std::mutex> lock(pause.mutex_);
      if (pause.is_on_) {
        throw Failure(ADRENOC_NOT_READY, "models are paused: adrenoc_resume lets them compute");
      }
      ++pause.turns_;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      Pause& pause = global();
      const std::lock_guard<std::mutex> lock(pause.mutex_);
      if (--pause.turns_ == 0) pause.changed_.notify_all();
    }
  };

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_on_ = false;
  size_t turns_ = 0;
};

}  // namespace adrenoc_runtime
