// Finds the device that a caller names.
#pragma once

#include <tvm/runtime/base.h>
#include <tvm/runtime/device_api.h>

#include <string>

#include "opencl/device_info.h"

namespace adrenoc_runtime {

struct ChosenDevice {
  DLDevice device;
  std::string name;
  std::string note{};  // what became of the library that was asked for; "" where it is open
};

// `wanted` as in adrenoc_options.  `library` is the OpenCL library to open, empty for the system's;
// where another one is open already, that one is used.  Throws Failure (no device).
[[nodiscard]] ChosenDevice choose_device(const std::string& wanted, const std::string& library);

// The number of an Adreno in what its driver says of it ("750", "642l"); "" for another device.
[[nodiscard]] std::string adreno_number(const opencl::DeviceInfo& info);

// Says that a bundle for one Adreno GPU runs on another one, with what to type; "" for the GPU that
// it was compiled for, and where one of the two is not known by its number.
[[nodiscard]] std::string other_gpu_note(const std::string& target, const opencl::DeviceInfo& info);

}  // namespace adrenoc_runtime
