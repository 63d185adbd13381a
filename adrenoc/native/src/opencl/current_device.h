// Which device this thread works on.
#ifndef ADRENOC_NATIVE_OPENCL_CURRENT_DEVICE_H_
#define ADRENOC_NATIVE_OPENCL_CURRENT_DEVICE_H_

namespace adrenoc_runtime {
namespace opencl {

// The device that TVM has chosen for this thread; 0 unless it said otherwise.
[[nodiscard]] int current_device_id();
void set_current_device_id(int device_id);

}  // namespace opencl
}  // namespace adrenoc_runtime

#endif  // ADRENOC_NATIVE_OPENCL_CURRENT_DEVICE_H_
