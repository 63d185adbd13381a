// OpenCL C of one or more kernels, compiled for one device.
#pragma once

#include <tvm/ffi/error.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "files/file.h"
#include "opencl/cl_api.h"
#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

// The options that programs are built with.  Throws RuntimeError for a device whose OpenCL C is too
// old.
[[nodiscard]] inline std::string build_options(const DeviceInfo& info) {
  if (info.c_version >= 300) return "-cl-std=CL3.0";
  if (info.c_version >= 200) return "-cl-std=CL2.0";
  // Below 2.0 the generated code reads images without a sampler, and then what lies outside an
  // image is undefined instead of 0: kernels would compute wrong numbers at the borders.
  TVM_FFI_THROW(RuntimeError) << info.name << " compiles OpenCL C " << info.c_version / 100 << "."
                              << info.c_version % 100 / 10
                              << "; kernels need OpenCL C 2.0 or newer";
  TVM_FFI_UNREACHABLE();
}

class BuiltProgram {
 public:
  // Compiles texts that define the kernels `names`, a text each.  Throws RuntimeError with the
  // compiler's log.
  BuiltProgram(Device& device, std::vector<std::string> names,
               const std::vector<const std::string*>& texts)
      : device_(device), names_(std::move(names)) {
    std::vector<const char*> parts;
    std::vector<size_t> lengths;
    for (const std::string* text : texts) {
      parts.push_back(text->data());
      lengths.push_back(text->size());
      // A macro begins a line.
      parts.push_back("\n");
      lengths.push_back(1);
    }
    cl_int code = CL_SUCCESS;
    program_ = ProgramHandle(api().clCreateProgramWithSource(device_.context(),
                                                             static_cast<cl_uint>(parts.size()),
                                                             parts.data(), lengths.data(), &code));
    check(code, "clCreateProgramWithSource");
    build();
  }

  // Takes what binary() gave on the same device and driver.
  struct Binary {
    const std::string& bytes;
  };
  BuiltProgram(Device& device, std::vector<std::string> names, Binary binary)
      : device_(device), names_(std::move(names)) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(binary.bytes.data());
    const size_t length = binary.bytes.size();
    const cl_device_id id = device_.id();
    cl_int status = CL_SUCCESS;
    cl_int code = CL_SUCCESS;
    program_ = ProgramHandle(api().clCreateProgramWithBinary(device_.context(), 1, &id, &length,
                                                             &bytes, &status, &code));
    check(code, "clCreateProgramWithBinary");
    check(status, "clCreateProgramWithBinary");
    build();
  }

  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

  // A new OpenCL object of one of its kernels.
  [[nodiscard]] KernelHandle new_kernel(const std::string& name) const {
    cl_int code = CL_SUCCESS;
    KernelHandle made(api().clCreateKernel(program_.get(), name.c_str(), &code));
    if (code == CL_OUT_OF_RESOURCES || code == CL_OUT_OF_HOST_MEMORY) check(code, "clCreateKernel");
    if (code != CL_SUCCESS) {
      TVM_FFI_THROW(RuntimeError) << "The source of kernel " << name
                                  << " does not define it: clCreateKernel failed with "
                                  << error_name(code);
    }
    return made;
  }

  [[nodiscard]] std::string binary() const {
    // The program is for one device, so there is one size and one binary.
    size_t size = 0;
    ADRENOC_CL_CALL(clGetProgramInfo, program_.get(), CL_PROGRAM_BINARY_SIZES, sizeof(size), &size,
                    nullptr);
    std::string bytes(size, '\0');
    char* data = bytes.data();
    ADRENOC_CL_CALL(clGetProgramInfo, program_.get(), CL_PROGRAM_BINARIES, sizeof(data), &data,
                    nullptr);
    return bytes;
  }

 private:
  void build() {
    const std::string options = build_options(device_.info());
    const std::string& first = names_.front();
    trace("building kernel", first);
    const cl_device_id id = device_.id();
    const cl_int built =
        api().clBuildProgram(program_.get(), 1, &id, options.c_str(), nullptr, nullptr);
    if (built == CL_SUCCESS) return;
    TVM_FFI_THROW(RuntimeError) << "Cannot build kernel " << first << " for " << device_.info().name
                                << ": clBuildProgram failed with " << error_name(built)
                                << ", options " << options << "\n"
                                << build_log();
  }
  [[nodiscard]] std::string build_log() const {
    size_t size = 0;
    const cl_device_id id = device_.id();
    if (api().clGetProgramBuildInfo(program_.get(), id, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size) !=
        CL_SUCCESS) {
      return "(the driver gives no build log)";
    }
    std::string log(size, '\0');
    ADRENOC_CL_CALL(clGetProgramBuildInfo, program_.get(), id, CL_PROGRAM_BUILD_LOG, size,
                    log.data(), nullptr);
    while (!log.empty() && log.back() == '\0') log.pop_back();
    return log.empty() ? "(the build log is empty)" : log;
  }

  Device& device_;
  const std::vector<std::string> names_;
  ProgramHandle program_;
};

// An H200's driver takes 38 ms for a program of one small kernel and 5 ms for each further kernel;
// PoCL 210 ms and 23 ms.  Of 58 kernels of DenseNet-121, eight a program took 4.1 s, each alone
// 7.8 s, and all in one 5.3 s.
constexpr size_t kMostKernels = 8;

// Which of `sizes` texts become one program, for a driver that builds on `threads` threads: what a
// driver does for a program beside its kernels is done less often, while every thread has work.
// Neighbours stay together, in order.
[[nodiscard]] inline std::vector<std::vector<size_t>> programs_of_texts(
    const std::vector<size_t>& sizes, size_t threads) {
  if (sizes.empty()) return {};
  const size_t by_count = (sizes.size() + kMostKernels - 1) / kMostKernels;
  const size_t wanted = std::min(std::max(by_count, threads), sizes.size());
  const size_t whole = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
  std::vector<std::vector<size_t>> programs(1);
  size_t bytes = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    // A program ends where its share of all text does.
    const bool is_full = programs.back().size() == kMostKernels ||
                         bytes + sizes[i] / 2 > whole / wanted * programs.size();
    if (is_full && !programs.back().empty()) programs.emplace_back();
    programs.back().push_back(i);
    bytes += sizes[i];
  }
  return programs;
}

}  // namespace adrenoc_runtime::opencl
