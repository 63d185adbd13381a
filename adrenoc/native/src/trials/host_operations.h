// Times, by the host's clock, of what a run does beside computing: launches one by one and
// recorded, under hints, on large buffers; and whether what they bring is right.
#pragma once

#include <tvm/ffi/extra/json.h>

#include "base/json.h"
#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

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
