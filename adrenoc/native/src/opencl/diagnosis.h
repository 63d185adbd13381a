// Why a device refused a command: drivers have one code, CL_OUT_OF_RESOURCES, for memory that ran
// out, kernels that faulted and kernels that ran for too long.
#pragma once

#include <tvm/ffi/extra/json.h>

#include <string>

#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

struct Diagnosis {
  uint64_t used_bytes = 0;    // by this process
  uint64_t device_bytes = 0;  // all that the device has
  // Whether it computes again, after the pool was given back: "" for yes, else the call and what it
  // answered.
  std::string refusal;

  // Whether so much is in use that memory may have run out.
  [[nodiscard]] bool is_memory_short() const { return used_bytes * 2 >= device_bytes; }
  // What decides, and what it was then.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] tvm::ffi::json::Object to_json() const;
};

// Tries a small command; to be asked after a command failed.
[[nodiscard]] Diagnosis diagnose(Device& device);

// The message of a failure that may have several causes, with what decides between them; any other
// message as it is.
[[nodiscard]] std::string explained(const std::string& message, Device& device);

}  // namespace adrenoc_runtime::opencl
