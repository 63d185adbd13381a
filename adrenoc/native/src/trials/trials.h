// Candidate kernels of a tuner: built side by side while others are measured, one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trials/trial_measure.h"

namespace adrenoc_runtime::opencl {

// Begins to build the kernels of a trial in the background; returns its number.  `text` is JSON:
// {"kernels": [{"name", "source", "global": [x, y, z], "local": [x, y, z]}...],
// "limit_s": 20}.  A build that takes longer than the limit ends this process.
[[nodiscard]] int64_t start_trial(int device_id, const std::string& text);

// Whether all its kernels are built, or refused, after waiting for at most `wait_ms`.
[[nodiscard]] bool trial_is_built(int64_t number, int64_t wait_ms);

// Measures it as `measure_candidates` does, and forgets it.  `text` is JSON: {"counts": [arguments
// of each kernel...], "limit_s", "tolerance", "stop_us", "bytes": false, "compare": false}; with
// "operations": [...] it does those in place of kernels (`measure_host_operations`).  `tensors` are
// those arguments, after the reference if there is one.  Returns JSON: what `measure_candidates`
// does, or {"refused": KIND, "index": WHICH, "detail": TEXT}, KIND being build too.  What takes
// longer than the limit ends this process.
[[nodiscard]] std::string measure_trial(int64_t number, const std::string& text,
                                        const std::vector<const DLTensor*>& tensors);

// Fills a tensor of the device with the bytes of one on the host, again and again, for what is made
// here need not be sent.  Throws ValueError where that one is empty or not on the host.
void repeat_pattern(const DLTensor& pattern, const DLTensor& to);

}  // namespace adrenoc_runtime::opencl
