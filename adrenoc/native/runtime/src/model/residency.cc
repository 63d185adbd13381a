#include "model/residency.h"

#include <algorithm>

#include "opencl/device.h"

namespace adrenoc_runtime {

Residency& Residency::global() {
  // Never destroyed: models may outlive what ends with the process.
  static auto* instance = new Residency();
  return *instance;
}

void Residency::add(Resident* one) {
  const std::lock_guard<std::mutex> lock(mutex_);
  by_use_.push_back(one);
}

void Residency::remove(const Resident* one) {
  const std::lock_guard<std::mutex> lock(mutex_);
  by_use_.erase(std::remove(by_use_.begin(), by_use_.end(), one), by_use_.end());
}

void Residency::set_budget(uint64_t bytes) {
  {
    const std::lock_guard<std::mutex> lock(facts_mutex_);
    facts_.budget_bytes = bytes;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes != 0) shrink_locked(nullptr, bytes);
}

uint64_t Residency::budget() {
  const std::lock_guard<std::mutex> lock(facts_mutex_);
  return facts_.budget_bytes;
}

void Residency::make_room(const Resident* user, uint64_t bytes) {
  const uint64_t most = budget();
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find(by_use_.begin(), by_use_.end(), user);
  if (found != by_use_.end()) std::rotate(found, found + 1, by_use_.end());
  if (most != 0) shrink_locked(user, most - std::min(most, bytes));
}

void Residency::empty_for(const Resident* user) {
  const std::lock_guard<std::mutex> lock(mutex_);
  shrink_locked(user, 0);
}

void Residency::shrink_locked(const Resident* user, uint64_t most_bytes) {
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

void Residency::trim(Resident::Part part) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Resident* one : by_use_) (void)one->give_up(part, true);
  opencl::release_all_pools();
}

void Residency::note_eviction() {
  const std::lock_guard<std::mutex> lock(facts_mutex_);
  ++facts_.evictions;
}

void Residency::note_return(double ms) {
  const std::lock_guard<std::mutex> lock(facts_mutex_);
  ++facts_.returns;
  facts_.return_ms += ms;
}

Residency::Facts Residency::facts() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::lock_guard<std::mutex> facts_lock(facts_mutex_);
  Facts told = facts_;
  told.models = static_cast<uint32_t>(by_use_.size());
  told.evicted = static_cast<uint32_t>(std::count_if(
      by_use_.begin(), by_use_.end(), [](const Resident* one) { return !one->has_constants(); }));
  return told;
}

}  // namespace adrenoc_runtime
