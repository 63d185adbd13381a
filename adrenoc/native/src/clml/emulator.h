// A stand-in for the library of a phone, for tests: reference arithmetic on the CPU, on memory of
// any OpenCL device, with the rules of the real one made strict.
#pragma once

#include <tvm/ffi/string.h>

#include <memory>
#include <string>
#include <vector>

#include "clml/backend.h"
#include "opencl/device.h"

namespace adrenoc_runtime::clml {

// What the emulator pretends to be.
struct EmulatorSettings {
  bool extension = true;           // whether the device has cl_qcom_ml_ops at all
  std::vector<int> versions = {1, 2, 3, 4};
  bool recording = true;
  // The call that fails, by the name of the library's entry point, with this code, after so many
  // successes; empty where none fails.
  std::string failing_call;
  std::string failing_code;
  int failing_after = 0;
};

// Throws Failure for a text that is not such settings as JSON.
[[nodiscard]] EmulatorSettings read_emulator_settings(const std::string& text);

// The entry points with their error codes, as JSON.
[[nodiscard]] tvm::ffi::String emulated_calls_text();

[[nodiscard]] std::unique_ptr<Backend> make_emulator(opencl::Device& device,
                                                     const EmulatorSettings& settings);

// Objects of all emulators that have not been given back.
[[nodiscard]] int64_t live_emulator_objects();

}  // namespace adrenoc_runtime::clml
