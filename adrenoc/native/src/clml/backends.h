// Which OpenCL ML library a device runs, if any.
#pragma once

#include <memory>
#include <string>

#include "clml/backend.h"
#include "opencl/device.h"

namespace adrenoc_runtime::clml {

// The library of a device, or the reason why there is none.
struct Choice {
  std::shared_ptr<Backend> backend;
  std::string reason;
  bool by_request = false;  // nobody needs to be told
};

// Asked once a device and kept, until the settings change.
[[nodiscard]] Choice backend_of(opencl::Device& device);

// Settings of the process, each with a function "adrenoc.clml.*" of its own.

// Devices are emulated as this JSON says (EmulatorSettings); "" ends it.  At the start the
// environment variable ADRENOC_CLML_EMULATOR says so.
void emulate(const std::string& settings);
// Lets regions run in textures although CLML could run them.
void switch_off(bool off);
// Where tuning results are kept; "" keeps none.
void set_cache_folder(const std::string& folder);
[[nodiscard]] std::string cache_folder();
// Grows whenever a setting changes: what was decided before holds no longer.
[[nodiscard]] int settings_number();

// Made by the one file that knows the real library; null and a reason where it is not built in,
// or the device does not have it.
[[nodiscard]] Choice real_backend(opencl::Device& device);

}  // namespace adrenoc_runtime::clml
