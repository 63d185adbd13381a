// What holds for all models of the process: memory of the device, pauses, a ceiling on submissions.
#include "c_api/call.h"
#include "launch/pacing.h"
#include "model/pause.h"
#include "model/residency.h"
#include "opencl/device.h"

using namespace adrenoc_runtime;

adrenoc_status adrenoc_set_memory_budget(uint64_t bytes) {
  return guarded([&] { Residency::global().set_budget(bytes); });
}

adrenoc_status adrenoc_trim_memory(uint32_t part) {
  return guarded([&] {
    switch (part) {
      case ADRENOC_TRIM_UNUSED:
        opencl::release_all_pools();
        return;
      case ADRENOC_TRIM_BETWEEN:
        Residency::global().trim(Resident::Part::kBetween);
        return;
      case ADRENOC_TRIM_CONSTANTS:
        Residency::global().trim(Resident::Part::kConstants);
        return;
      default:
        throw Failure(ADRENOC_BAD_ARGUMENT,
                      "part is " + std::to_string(part) + ", expected an adrenoc_trim_part");
    }
  });
}

adrenoc_status adrenoc_get_memory(adrenoc_memory* memory) {
  return guarded([&] {
    require(memory, "memory");
    (void)read_plain(memory, "memory");
    const Residency::Facts facts = Residency::global().facts();
    const opencl::HeldBytes held = opencl::held_bytes();
    adrenoc_memory told{};
    told.models = facts.models;
    told.evicted = facts.evicted;
    told.budget_bytes = facts.budget_bytes;
    told.used_bytes = held.used;
    told.pooled_bytes = held.pooled;
    told.evictions = facts.evictions;
    told.returns = facts.returns;
    told.return_ms = facts.return_ms;
    tell_plain(told, memory);
  });
}

adrenoc_status adrenoc_pause(int64_t timeout_ms) {
  return guarded([&] {
    if (Pause::global().begin(timeout_ms)) return;
    throw Failure(ADRENOC_NOT_READY, "a model still computes; no other run begins");
  });
}

adrenoc_status adrenoc_resume(void) {
  return guarded([&] { Pause::global().end(); });
}

adrenoc_status adrenoc_set_submission_limit(double ms) {
  return guarded([&] {
    if (!(ms >= 0)) {
      throw Failure(ADRENOC_BAD_ARGUMENT,
                    "a submission of " + std::to_string(ms) + " ms, expected 0 or more");
    }
    opencl::set_submission_limit(ms);
  });
}
