#include "opencl/hints.h"

#include <tvm/ffi/error.h>

#include <atomic>

namespace adrenoc_runtime::opencl {
namespace {

namespace json = tvm::ffi::json;

constexpr const char* kPerformanceExtension = "cl_qcom_perf_hint";
constexpr const char* kPriorityExtension = "cl_qcom_priority_hint";
constexpr const char* kQueueExtension = "cl_khr_priority_hints";
constexpr const char* kNames[] = {"", "low", "normal", "high"};

// By the last call.
std::atomic<Hints> wanted{};

// High, normal and low follow each other in Qualcomm's numbers, and in the standard's bits.
intptr_t qualcomm_number(cl_uint high, Level level) {
  return static_cast<intptr_t>(high) + (static_cast<int>(Level::kHigh) - static_cast<int>(level));
}

cl_ulong queue_bit(Level level) {
  return CL_QUEUE_PRIORITY_HIGH << (static_cast<int>(Level::kHigh) - static_cast<int>(level));
}

}  // namespace

Level level_of(const std::string& word) {
  for (int i = 0; i < 4; ++i) {
    if (word == kNames[i]) return static_cast<Level>(i);
  }
  TVM_FFI_THROW(ValueError) << "a hint is \"" << word << "\", expected low, normal or high";
  TVM_FFI_UNREACHABLE();
}

const char* level_name(Level level) { return kNames[static_cast<int>(level)]; }

void set_hints(const Hints& hints) { wanted = hints; }

Hints wanted_hints() { return wanted; }

json::Array to_json(const std::vector<HintUse>& uses) {
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

std::vector<std::string> to_notes(const std::vector<HintUse>& uses) {
  std::vector<std::string> notes;
  for (const HintUse& use : uses) {
    const std::string begin = use.hint + " " + use.asked;
    notes.push_back(use.given_by.empty() ? begin + " was not asked of the driver: " + use.reason
                                         : begin + " was asked of the driver by " + use.given_by);
  }
  return notes;
}

HintProperties hint_properties(const Hints& hints, const DeviceInfo& info) {
  HintProperties properties;
  const auto add = [&](const char* hint, Level level, const char* extension, cl_uint key,
                       cl_uint high) {
    if (level == Level::kUnset) return;
    HintUse use{hint, level_name(level), "", ""};
    if (info.has_extension(extension)) {
      use.given_by = extension;
      properties.context.push_back(key);
      properties.context.push_back(qualcomm_number(high, level));
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
      properties.queue = {CL_QUEUE_PRIORITY, queue_bit(hints.priority)};
    } else {
      use.reason += std::string(" and no ") + kQueueExtension;
    }
  }
  if (!properties.context.empty()) properties.context.push_back(0);
  return properties;
}

void refused_hints(const std::string& error, std::vector<HintUse>* uses) {
  for (HintUse& use : *uses) {
    if (use.given_by.empty()) continue;
    use.reason = "the driver has " + use.given_by + " and refused it with " + error;
    use.given_by.clear();
  }
}

}  // namespace adrenoc_runtime::opencl
