// Which device this thread works on.
#pragma once

namespace adrenoc_runtime::opencl {

// The device that TVM has chosen for this thread; 0 unless it said otherwise.
[[nodiscard]] int current_device_id();
void set_current_device_id(int device_id);

}  // namespace adrenoc_runtime::opencl
