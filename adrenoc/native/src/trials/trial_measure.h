// Whether the numbers of candidate kernels are right, and how long they take; and the same of what
// a run does beside computing.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/extra/json.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/json.h"
#include "launch/kernel.h"
#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

// A candidate: its kernel, how it is launched, and the tensors, of which the last is written.
struct Candidate {
  Kernel* kernel;
  WorkSize work;
  std::vector<const DLTensor*> arguments;
};

struct TrialSettings {
  // What the outputs are compared with, on the host; null for no comparison.
  const DLTensor* reference = nullptr;
  double tolerance = 0;
  // One candidate alone that takes longer is not measured further; 0 for no such limit.
  double stop_us = 0;
  // Outputs are quanta, four to a word.
  bool is_bytes = false;
};

// A candidate is to blame: `kind` is unstable, wrong or group, `index` says which one.
class RefusedCandidate : public std::runtime_error {
 public:
  RefusedCandidate(const char* kind, size_t index, const std::string& detail)
      : std::runtime_error(detail), kind_(kind), index_(index) {}
  [[nodiscard]] const char* kind() const noexcept { return kind_; }
  [[nodiscard]] size_t index() const noexcept { return index_; }

 private:
  const char* kind_;
  size_t index_;
};

// Runs each candidate several times onto different old contents, where its output has to be equal
// in every bit and near the reference; then all of them in turn, for what disturbs the device
// disturbs all.  Returns {"times_us": [[...]...], "errors": [...]}, with "by_host": true where
// some times are the host's, for the device's events tell of none.  Throws RefusedCandidate, and
// RuntimeError where the device fails.
[[nodiscard]] tvm::ffi::json::Object measure_candidates(const std::vector<Candidate>& candidates,
                                                        const TrialSettings& settings);

// Does each operation once, then all in turn several times.  An operation is one of
//     {"operation": "launches", "way": WAY, "count": N}  N small kernels, until the last has ended
//     {"operation": "hint", "hint": "performance" | "priority"}  a kernel on a device made with it
//     {"operation": "large", "bytes": N}  one kernel on both ends of such a buffer
// where WAY is queue, recording or command_buffer.  Returns what `measure_candidates` does.  Throws
// RefusedCandidate: "refused" with the reason why an operation cannot be done here, "wrong" where
// it brings other numbers; RuntimeError where the device fails.
[[nodiscard]] tvm::ffi::json::Object measure_host_operations(Device& device,
                                                             const Json::List& operations);

}  // namespace adrenoc_runtime::opencl
