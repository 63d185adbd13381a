// Finds the device that a caller names.
#ifndef ADRENOC_RUNTIME_CHOOSE_DEVICE_H_
#define ADRENOC_RUNTIME_CHOOSE_DEVICE_H_

#include <tvm/runtime/base.h>
#include <tvm/runtime/device_api.h>

#include <string>

namespace adrenoc_runtime {

struct ChosenDevice {
  DLDevice device;
  std::string name;
};

// `wanted` as in adrenoc_options.  `library` is the OpenCL library to open, empty for the system's.
// Throws Failure (no device).
[[nodiscard]] ChosenDevice choose_device(const std::string& wanted, const std::string& library);

}  // namespace adrenoc_runtime

#endif  // ADRENOC_RUNTIME_CHOOSE_DEVICE_H_
