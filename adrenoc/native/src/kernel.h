// One kernel, built for one device.
#ifndef ADRENOC_NATIVE_KERNEL_H_
#define ADRENOC_NATIVE_KERNEL_H_

#include <array>
#include <string>
#include <vector>

#include "cl_api.h"
#include "device.h"

namespace adrenoc {
namespace opencl {

struct KernelArgument {
  size_t bytes;
  const void* value;
  const StorageSpec* memory;  // what kind of memory is passed; null for a scalar
};

// Work-items: all of them, and those of one work-group.
struct WorkSize {
  cl_uint dimensions;
  std::array<size_t, 3> global;
  std::array<size_t, 3> local;
};

// The options that programs are built with.  Throws RuntimeError for a device whose OpenCL C is too
// old.
[[nodiscard]] std::string build_options(const DeviceInfo& info);

class Kernel {
 public:
  // Compiles OpenCL C that defines the kernel `name`.  Throws RuntimeError with the compiler's log.
  Kernel(Device& device, std::string name, const std::string& source);

  // Takes what binary() gave on the same device and driver.
  struct Binary {
    const std::string& bytes;
  };
  Kernel(Device& device, std::string name, Binary binary);

  // Throws ValueError when the work-group is larger than the device takes for this kernel.
  void launch(const WorkSize& work, const std::vector<KernelArgument>& arguments);

  [[nodiscard]] std::string binary() const;

 private:
  void build(const std::string& options);
  void check_work_group(const WorkSize& work) const;
  [[nodiscard]] std::string build_log() const;

  Device& device_;
  const std::string name_;
  ProgramHandle program_;
  KernelHandle kernel_;
  size_t max_work_group_size_ = 0;
};

}  // namespace opencl
}  // namespace adrenoc

#endif  // ADRENOC_NATIVE_KERNEL_H_
