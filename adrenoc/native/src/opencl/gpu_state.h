// Clock, temperature and governor of an Adreno GPU, as the kernel shows them.
#pragma once

#include <tvm/ffi/extra/json.h>

#include <string>

namespace adrenoc_runtime {

// Keys: model, clock_hz, max_clock_hz, governor, temperature_mc (thousandths of a degree Celsius),
// busy; each only where the file of that fact can be read, so nothing without an Adreno.  `root`
// is "/sys".
[[nodiscard]] tvm::ffi::json::Object gpu_state(const std::string& root);

}  // namespace adrenoc_runtime
