// What GPUs can do by words that no extension list names, or that drivers get wrong: whether
// kernels may use it, a trial on the device tells.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

// What became of one that kernels are written for.
struct BuiltInUse {
  std::string name;    // "the constant file"
  std::string define;  // what programs begin with where it is used
  std::string reason;  // why it is not used; "" where it is
};

// Of those that the texts of kernels ask for.  The trial of each, by a kernel with the words of the
// first text that asks for it, is made once a process; ADRENOC_BUILT_INS=0 forgoes all.
[[nodiscard]] std::vector<BuiltInUse> built_in_uses(
    Device& device, const std::map<std::string, std::string>& sources);

// "the constant file: used; matrix units: ...".
[[nodiscard]] std::string to_text(const std::vector<BuiltInUse>& uses);

// Keeps what trials build in a folder, so that a later process compiles nothing for them.
void keep_trials_in(const std::string& folder);

// The kernel of a trial: its weights and `place` are halves, what it sums are floats, which are
// whole numbers that halves hold.
struct BuiltInTrial {
  std::string text;
  std::vector<uint16_t> weights;
  std::vector<uint16_t> place;
  std::vector<float> expected;
  size_t groups = 0;
};

constexpr const char* kTrialName = "trial";
constexpr size_t kTrialThreads = 128;  // of a work-group

// Texts that begin with these may use the constant file, or matrix units.
constexpr const char* kStartConstants = "START_CONSTANTS(";
constexpr const char* kStartMatrices = "START_MATRICES(";
[[nodiscard]] BuiltInTrial constant_file_trial(const std::string& source);
[[nodiscard]] BuiltInTrial matrix_units_trial(const std::string& source);

}  // namespace adrenoc_runtime::opencl
