// The entry points of the emulated library: which there are, since when, and how each can fail.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "clml/backend.h"

namespace adrenoc_runtime::clml {

// Name of an entry point -> the codes that it can fail with.  The names are those that TVM's CLML
// runtime calls; the codes are what functions of their kind return in OpenCL, and the extension's
// own for an operator that the device does not accelerate.
[[nodiscard]] const std::map<std::string, std::vector<std::string>>& emulated_calls();

// The function that creates an operator.
[[nodiscard]] std::string creating_call(const Operation& operation);

// The interface that has an operator first; the pattern table tells where this is from.
[[nodiscard]] int first_version(const Operation& operation);

}  // namespace adrenoc_runtime::clml
