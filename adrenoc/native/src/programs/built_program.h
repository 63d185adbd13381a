// OpenCL C of one or more kernels, compiled for one device.
#pragma once

#include <string>
#include <vector>

#include "opencl/cl_api.h"
#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

// The options that programs are built with.  Throws RuntimeError for a device whose OpenCL C is too
// old.
[[nodiscard]] std::string build_options(const DeviceInfo& info);

class BuiltProgram {
 public:
  // Compiles texts that define the kernels `names`, a text each.  Throws RuntimeError with the
  // compiler's log.
  BuiltProgram(Device& device, std::vector<std::string> names,
               const std::vector<const std::string*>& texts);

  // Takes what binary() gave on the same device and driver.
  struct Binary {
    const std::string& bytes;
  };
  BuiltProgram(Device& device, std::vector<std::string> names, Binary binary);

  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

  // A new OpenCL object of one of its kernels.
  [[nodiscard]] KernelHandle new_kernel(const std::string& name) const;

  [[nodiscard]] std::string binary() const;

 private:
  void build();
  [[nodiscard]] std::string build_log() const;

  Device& device_;
  const std::vector<std::string> names_;
  ProgramHandle program_;
};

// Which of `sizes` texts become one program, for a driver that builds on `threads` threads: what a
// driver does for a program beside its kernels is done less often, while every thread has work.
// Neighbours stay together, in order.
[[nodiscard]] std::vector<std::vector<size_t>> programs_of_texts(const std::vector<size_t>& sizes,
                                                                 size_t threads);

}  // namespace adrenoc_runtime::opencl
