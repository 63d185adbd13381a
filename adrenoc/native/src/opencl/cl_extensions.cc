#include "opencl/cl_extensions.h"

#include <tvm/ffi/error.h>

#include "opencl/cl_api.h"

namespace adrenoc_runtime::opencl {
namespace {

// A loader asks the platform; a driver that is opened without one may just export the function.
template <typename Function>
void load_entry(cl_platform_id platform, const char* name, Function* function) {
  void* found = api().clGetExtensionFunctionAddressForPlatform(platform, name);
  if (found == nullptr) found = library_symbol(name);
  if (found == nullptr) TVM_FFI_THROW(RuntimeError) << "the driver has no " << name;
  *function = reinterpret_cast<Function>(found);
}

}  // namespace

CommandBufferApi load_command_buffer_api(cl_platform_id platform) {
  CommandBufferApi loaded;
#define ADRENOC_CL_COMMAND_BUFFER(field, name, result, parameters) \
  load_entry(platform, name, &loaded.field);
  return loaded;
}

RecordingApi load_recording_api(cl_platform_id platform) {
  RecordingApi loaded;
#define ADRENOC_CL_RECORDING(field, name, result, parameters) \
  load_entry(platform, name, &loaded.field);
#include "opencl/cl_extensions.def"
  return loaded;
}

ExternalMemoryApi load_external_memory_api(cl_platform_id platform) {
  ExternalMemoryApi loaded;
#define ADRENOC_CL_EXTERNAL(field, name, result, parameters) \
  load_entry(platform, name, &loaded.field);
#include "opencl/cl_extensions.def"
  return loaded;
}

}  // namespace adrenoc_runtime::opencl
