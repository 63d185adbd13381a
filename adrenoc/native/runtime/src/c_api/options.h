// What a caller wants of a load, read from the C API's struct.
#pragma once

#include "adrenoc.h"
#include "model/model.h"

namespace adrenoc_runtime {

// Throws Failure (bad argument) for a value that no field takes.
[[nodiscard]] LoadOptions read_options(const adrenoc_options& plain);

}  // namespace adrenoc_runtime
