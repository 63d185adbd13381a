#include "opencl/current_device.h"

namespace adrenoc_runtime::opencl {
namespace {

thread_local int thread_device_id = 0;

}  // namespace

int current_device_id() { return thread_device_id; }
void set_current_device_id(int device_id) { thread_device_id = device_id; }

}  // namespace adrenoc_runtime::opencl
