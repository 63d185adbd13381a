// What `memory_opencl.cc` leaves out: each function is there, and does nothing.
#include "opencl/cl_types.h"

namespace adrenoc_runtime {
namespace opencl {

#define ADRENOC_CL_FUNCTION(name, result, parameters) \
  extern "C" __attribute__((weak)) result name parameters { return {}; }
#include "opencl/cl_functions.def"
#undef ADRENOC_CL_FUNCTION

}  // namespace opencl
}  // namespace adrenoc_runtime
