#include "opencl/gpu_state.h"

#include <cstdlib>
#include <fstream>

namespace adrenoc_runtime {
namespace {

namespace ffi = tvm::ffi;

struct Fact {
  const char* key;
  const char* file;
  bool is_number;
};

// Linux's driver for Adreno GPUs is named kgsl.
constexpr const char* kGpuFolder = "/class/kgsl/kgsl-3d0/";
constexpr Fact kFacts[] = {
    {"model", "gpu_model", false},
    {"clock_hz", "gpuclk", true},
    {"max_clock_hz", "max_gpuclk", true},
    {"governor", "devfreq/governor", false},
    {"temperature_mc", "temp", true},
    {"busy", "gpu_busy_percentage", false},
};

}  // namespace

ffi::json::Object gpu_state(const std::string& root) {
  ffi::json::Object state;
  for (const Fact& fact : kFacts) {
    std::ifstream stream(root + kGpuFolder + fact.file);
    std::string line;
    if (!std::getline(stream, line) || line.empty()) continue;
    char* end = nullptr;
    const long long number = std::strtoll(line.c_str(), &end, 10);
    if (!fact.is_number) {
      state.Set(ffi::String(fact.key), ffi::String(line));
    } else if (end != line.c_str()) {
      state.Set(ffi::String(fact.key), static_cast<int64_t>(number));
    }
  }
  return state;
}

}  // namespace adrenoc_runtime
