// What an app wishes of the driver beside right results: how fast the GPU's clock shall be, and
// whose commands go first.
#pragma once

#include <tvm/ffi/extra/json.h>

#include <string>
#include <vector>

#include "opencl/device_info.h"

namespace adrenoc_runtime::opencl {

enum class Level { kUnset, kLow, kNormal, kHigh };

// "" (unset), "low", "normal" or "high".  Throws ValueError for another word.
[[nodiscard]] Level level_of(const std::string& word);
[[nodiscard]] const char* level_name(Level level);

struct alignas(2 * sizeof(Level)) Hints {  // so that they are read and written as one number
  Level performance = Level::kUnset;
  Level priority = Level::kUnset;

  [[nodiscard]] bool operator==(const Hints& other) const {
    return performance == other.performance && priority == other.priority;
  }
};

// For devices that are used for the first time after this; the last call counts.
void set_hints(const Hints& hints);
[[nodiscard]] Hints wanted_hints();

// What became of one wish.
struct HintUse {
  std::string hint;      // "performance" or "priority"
  std::string asked;     // "low", "normal" or "high"
  std::string given_by;  // the extension that passes it on; "" where there is none
  std::string reason;    // why it is not passed on
};
[[nodiscard]] tvm::ffi::json::Array to_json(const std::vector<HintUse>& uses);
// A sentence each.
[[nodiscard]] std::vector<std::string> to_notes(const std::vector<HintUse>& uses);

// The properties that make a context or a queue so, ended by 0, and what became of each wish.
struct HintProperties {
  std::vector<intptr_t> context;
  std::vector<cl_ulong> queue;  // beside what else the queue is
  std::vector<HintUse> uses;
};
[[nodiscard]] HintProperties hint_properties(const Hints& hints, const DeviceInfo& info);

// The driver refused what passes wishes on: `uses` as they are without.
void refused_hints(const std::string& error, std::vector<HintUse>* uses);

}  // namespace adrenoc_runtime::opencl
