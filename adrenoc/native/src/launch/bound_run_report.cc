// What runs of a bound model tell: which way they went, why, and what they took of the host.
#include <tvm/ffi/error.h>

#include <algorithm>

#include "launch/bound_run.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;

constexpr size_t kMostSamples = 1000;

}  // namespace

Recording recording_of(const std::string& name) {
  if (name == "best") return Recording::kBest;
  if (name == "always") return Recording::kAlways;
  if (name == "kept") return Recording::kKept;
  if (name == "off") return Recording::kOff;
  TVM_FFI_THROW(ValueError) << "recording is \"" << name
                            << "\", expected best, always, kept or off";
  TVM_FFI_UNREACHABLE();
}

ffi::json::Object LaunchReport::to_json() const {
  ffi::json::Object json;
  json.Set("mode", ffi::String(mode));
  json.Set("reason", ffi::String(reason));
  json.Set("launches", static_cast<int64_t>(launches));
  json.Set("api_calls", static_cast<int64_t>(api_calls));
  json.Set("host_ms", host_ms);
  return json;
}

void LaunchHistory::note(const LaunchReport& run, bool is_steady) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // A run that is profiled, or makes what later runs use, says nothing about those.
  if (run.mode != report_.mode) host_ms_.clear();
  const bool says_nothing = !is_steady && !host_ms_.empty();
  const double host_ms = is_steady || says_nothing ? report_.host_ms : run.host_ms;
  const uint64_t calls = says_nothing ? report_.api_calls : run.api_calls;
  report_ = run;
  report_.host_ms = host_ms;
  report_.api_calls = calls;
  if (!is_steady) return;
  if (host_ms_.size() == kMostSamples) host_ms_.clear();
  host_ms_.push_back(run.host_ms);
}

LaunchReport LaunchHistory::report() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  LaunchReport report = report_;
  if (!host_ms_.empty()) {
    std::vector<double> sorted = host_ms_;
    std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
    report.host_ms = sorted[sorted.size() / 2];
  }
  return report;
}

}  // namespace adrenoc_runtime::opencl
