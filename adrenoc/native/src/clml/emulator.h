// A stand-in for the library of a phone, for tests: reference arithmetic on the CPU, on memory of
// any OpenCL device, with the rules of the real one made strict.
#pragma once

#include <tvm/ffi/string.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "clml/backend.h"
#include "opencl/device.h"

namespace adrenoc_runtime::clml {

// What the emulator pretends to be.
struct EmulatorSettings {
  bool extension = true;  // whether the device has cl_qcom_ml_ops at all
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

// Name of an entry point -> the codes that it can fail with.  The names are those that TVM's CLML
// runtime calls; the codes are what functions of their kind return in OpenCL, and the extension's
// own for an operator that the device does not accelerate.
[[nodiscard]] const std::map<std::string, std::vector<std::string>>& emulated_calls();

// The function that creates an operator.
[[nodiscard]] std::string creating_call(const Operation& operation);

// The interface that has an operator first; the pattern table tells where this is from.
[[nodiscard]] int first_version(const Operation& operation);

// The reference arithmetic: dense tensors of floats in the order n, c, h, w.
struct Plain {
  std::array<uint32_t, 4> dims = {1, 1, 1, 1};
  std::vector<float> data;

  [[nodiscard]] size_t offset(uint32_t n, uint32_t c) const {
    return (size_t{n} * dims[1] + c) * dims[2] * dims[3];
  }
};

// Fills `output`, whose dims are set.
void compute(const Operation& operation, const std::vector<Plain>& inputs, Plain* output);

// Why the dims do not go with the operator; "" where they do.
[[nodiscard]] std::string misfit(const Operation& operation,
                                 const std::vector<std::array<uint32_t, 4>>& inputs,
                                 const std::array<uint32_t, 4>& output);

}  // namespace adrenoc_runtime::clml
