// Entry points of extensions that record commands, or take memory of others.
#pragma once

#include "opencl/cl_types.h"

namespace adrenoc_runtime::opencl {

struct CommandBufferApi {
#define ADRENOC_CL_COMMAND_BUFFER(field, name, result, parameters) \
  result(*field) parameters = nullptr;
#include "opencl/cl_extensions.def"
};

struct RecordingApi {
#define ADRENOC_CL_RECORDING(field, name, result, parameters) result(*field) parameters = nullptr;
#include "opencl/cl_extensions.def"
};

struct ExternalMemoryApi {
#define ADRENOC_CL_EXTERNAL(field, name, result, parameters) result(*field) parameters = nullptr;
#include "opencl/cl_extensions.def"
};

// All throw RuntimeError, naming the function, when a platform lacks one.
[[nodiscard]] CommandBufferApi load_command_buffer_api(cl_platform_id platform);
[[nodiscard]] RecordingApi load_recording_api(cl_platform_id platform);
[[nodiscard]] ExternalMemoryApi load_external_memory_api(cl_platform_id platform);

}  // namespace adrenoc_runtime::opencl
