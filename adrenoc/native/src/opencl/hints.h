// What is wished of a device's driver: how fast it runs, and who goes first.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>

#include <atomic>
#include <string>
#include <vector>

#include "opencl/cl_api.h"
#include "opencl/device_info.h"

namespace adrenoc_runtime::opencl {

enum class Level { kUnset, kLow, kNormal, kHigh };

constexpr const char* kNames[] = {"", "low", "normal", "high"};

// "" (unset), "low", "normal" or "high".  Throws ValueError for another word.
[[nodiscard]] inline Level level_of(const std::string& word) {
  for (int i = 0; i < 4; ++i) {
    if (word == kNames[i]) return static_cast<Level>(i);
  }
  TVM_FFI_THROW(ValueError) << "a hint is \"" << word << "\", expected low, normal or high";
  TVM_FFI_UNREACHABLE();
}

[[nodiscard]] inline const char* level_name(Level level) { return kNames[static_cast<int>(level)]; }

struct alignas(2 * sizeof(Level)) Hints {  // so that they are read and written as one number
  Level performance = Level::kUnset;
  Level priority = Level::kUnset;

  [[nodiscard]] bool operator==(const Hints& other) const {
    return performance == other.performance && priority == other.priority;
  }
};

// By the last call.
inline std::atomic<Hints> asked_hints{};

// For devices that are used for the first time after this; the last call counts.
inline void set_hints(const Hints& hints) { asked_hints = hints; }

[[nodiscard]] inline Hints wanted_hints() { return asked_hints; }

// What became of one wish.
struct HintUse {
  std::string hint;      // "performance" or "priority"
  std::string asked;     // "low", "normal" or "high"
  std::string given_by;  // the extension that passes it on; "" where there is none
  std::string reason;    // why it is not passed on
};

[[nodiscard]] inline tvm::ffi::json::Array to_json(const std::vector<HintUse>& uses) {
  json::Array list;
  for (const HintUse& use : uses) {
    json::Object entry;
    entry.Set("hint", tvm::ffi::String(use.hint));
    entry.Set("asked", tvm::ffi::String(use.asked));
    entry.Set("given_by", tvm::ffi::String(use.given_by));
    entry.Set("reason", tvm::ffi::String(use.reason));
    list.push_back(entry);
  }
  return list;
}

// A sentence each.
[[nodiscard]] inline std::vector<std::string> to_notes(const std::vector<HintUse>& uses) {
  std::vector<std::string> notes;
  for (const HintUse& use : uses) {
    const std::string begin = use.hint + " " + use.asked;
    notes.push_back(use.given_by.empty() ? begin + " was not asked of the driver: " + use.reason
                                         : begin + " was asked of the driver by " + use.given_by);
  }
  return notes;
}

// The properties that make a context or a queue so, ended by 0, and what became of each wish.
struct HintProperties {
  std::vector<intptr_t> context;
  std::vector<cl_ulong> queue;  // beside what else the queue is
  std::vector<HintUse> uses;
};

constexpr const char* kPerformanceExtension = "cl_qcom_perf_hint";
constexpr const char* kPriorityExtension = "cl_qcom_priority_hint";
constexpr const char* kQueueExtension = "cl_khr_priority_hints";

// High, normal and low follow each other in Qualcomm's numbers, and in the standard's bits.
inline int below_high(Level level) {
  return static_cast<int>(Level::kHigh) - static_cast<int>(level);
}

[[nodiscard]] inline HintProperties hint_properties(const Hints& hints, const DeviceInfo& info) {
  HintProperties properties;
  const auto add = [&](const char* hint, Level level, const char* extension, cl_uint key,
                       cl_uint high) {
    if (level == Level::kUnset) return;
    HintUse use{hint, level_name(level), "", ""};
    if (info.has_extension(extension)) {
      use.given_by = extension;
      properties.context.push_back(key);
      properties.context.push_back(static_cast<intptr_t>(high) + below_high(level));
    } else {
      use.reason = info.name + " has no " + extension;
    }
    properties.uses.push_back(use);
  };
  add("performance", hints.performance, kPerformanceExtension, CL_CONTEXT_PERF_HINT_QCOM,
      CL_PERF_HINT_HIGH_QCOM);
  add("priority", hints.priority, kPriorityExtension, CL_CONTEXT_PRIORITY_HINT_QCOM,
      CL_PRIORITY_HINT_HIGH_QCOM);
  if (hints.priority != Level::kUnset && properties.uses.back().given_by.empty()) {
    HintUse& use = properties.uses.back();
    if (info.has_extension(kQueueExtension)) {
      use.given_by = kQueueExtension;
      use.reason.clear();
      properties.queue = {CL_QUEUE_PRIORITY, CL_QUEUE_PRIORITY_HIGH << below_high(hints.priority)};
    } else {
      use.reason += std::string(" and no ") + kQueueExtension;
    }
  }
  if (!properties.context.empty()) properties.context.push_back(0);
  return properties;
}

// The driver refused what passes wishes on: `uses` as they are without.
inline void refused_hints(const std::string& error, std::vector<HintUse>* uses) {
  for (HintUse& use : *uses) {
    if (use.given_by.empty()) continue;
    use.reason = "the driver has " + use.given_by + " and refused it with " + error;
    use.given_by.clear();
  }
}

namespace json = tvm::ffi::json;

}  // namespace adrenoc_runtime::opencl
