// What all models of the process hold of the device's memory, and how much they may.

#include "c_api/call.h"
#include "model/residency.h"
#include "opencl/device.h"

using adrenoc_runtime::Failure;
using adrenoc_runtime::guarded;
using adrenoc_runtime::require;
using adrenoc_runtime::Residency;
using adrenoc_runtime::Resident;

adrenoc_status adrenoc_set_memory_budget(uint64_t bytes) {
  return guarded([&] { Residency::global().set_budget(bytes); });
}

adrenoc_status adrenoc_trim_memory(uint32_t part) {
  return guarded([&] {
    switch (part) {
      case ADRENOC_TRIM_UNUSED:
        adrenoc_runtime::opencl::release_all_pools();
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
    if (memory->struct_bytes == 0) {
      throw Failure(ADRENOC_BAD_ARGUMENT, "struct_bytes of the memory is 0");
    }
    const Residency::Facts facts = Residency::global().facts();
    const adrenoc_runtime::opencl::HeldBytes held = adrenoc_runtime::opencl::held_bytes();
    adrenoc_memory told{};
    told.struct_bytes = memory->struct_bytes;
    told.models = facts.models;
    told.evicted = facts.evicted;
    told.budget_bytes = facts.budget_bytes;
    told.used_bytes = held.used;
    told.pooled_bytes = held.pooled;
    told.evictions = facts.evictions;
    told.returns = facts.returns;
    told.return_ms = facts.return_ms;
    std::memcpy(memory, &told, std::min<size_t>(told.struct_bytes, sizeof(told)));
  });
}
