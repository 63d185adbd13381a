#include "kernel.h"

#include <tvm/ffi/error.h>

#include <cstring>
#include <utility>

#include "call_sites.h"
#include "capture.h"
#include "trace.h"

namespace adrenoc_runtime {
namespace opencl {
namespace {

std::string argument_text(const KernelArgument& argument) {
  if (argument.storage != nullptr) return (*argument.storage)->spec.one();
  return "a scalar of " + std::to_string(argument.bytes) + " bytes";
}

std::string work_size_text(const WorkSize& work) {
  std::string text;
  for (cl_uint i = 0; i < work.dimensions; ++i) {
    text += (i ? " x " : "") + std::to_string(work.local[i]);
  }
  return text;
}

}  // namespace

void set_kernel_argument(cl_kernel handle, const std::string& kernel, size_t index,
                         const KernelArgument& argument) {
  cl_mem memory = nullptr;
  const void* value = argument.value;
  if (argument.storage != nullptr) {
    memory = (*argument.storage)->mem.get();
    value = &memory;
  }
  const cl_int code =
      api().clSetKernelArg(handle, static_cast<cl_uint>(index), argument.bytes, value);
  if (code == CL_SUCCESS) return;
  TVM_FFI_THROW(RuntimeError) << "Argument " << index << " of kernel " << kernel
                              << ": clSetKernelArg failed with " << error_name(code) << " for "
                              << argument_text(argument);
}

std::string build_options(const DeviceInfo& info) {
  if (info.c_version >= 300) return "-cl-std=CL3.0";
  if (info.c_version >= 200) return "-cl-std=CL2.0";
  // Below 2.0 the generated code reads images without a sampler, and then what lies outside an
  // image is undefined instead of 0: kernels would compute wrong numbers at the borders.
  TVM_FFI_THROW(RuntimeError) << info.name << " compiles OpenCL C " << info.c_version / 100 << "."
                              << info.c_version % 100 / 10
                              << "; kernels need OpenCL C 2.0 or newer";
  TVM_FFI_UNREACHABLE();
}

Kernel::Kernel(Device& device, std::string name, const std::string& source)
    : device_(device), name_(std::move(name)) {
  const std::string options = build_options(device_.info());
  const char* text = source.data();
  const size_t length = source.size();
  cl_int code = CL_SUCCESS;
  program_ =
      ProgramHandle(api().clCreateProgramWithSource(device_.context(), 1, &text, &length, &code));
  check(code, "clCreateProgramWithSource");
  build(options);
}

Kernel::Kernel(Device& device, std::string name, Binary binary)
    : device_(device), name_(std::move(name)) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(binary.bytes.data());
  const size_t length = binary.bytes.size();
  const cl_device_id id = device_.id();
  cl_int status = CL_SUCCESS;
  cl_int code = CL_SUCCESS;
  program_ = ProgramHandle(
      api().clCreateProgramWithBinary(device_.context(), 1, &id, &length, &bytes, &status, &code));
  check(code, "clCreateProgramWithBinary");
  check(status, "clCreateProgramWithBinary");
  build(build_options(device_.info()));
}

void Kernel::build(const std::string& options) {
  trace("building kernel", name_);
  const cl_device_id id = device_.id();
  const cl_int built =
      api().clBuildProgram(program_.get(), 1, &id, options.c_str(), nullptr, nullptr);
  if (built != CL_SUCCESS) {
    TVM_FFI_THROW(RuntimeError) << "Cannot build kernel " << name_ << " for " << device_.info().name
                                << ": clBuildProgram failed with " << error_name(built)
                                << ", options " << options << "\n"
                                << build_log();
  }
  cl_int code = CL_SUCCESS;
  instance_.handle = KernelHandle(api().clCreateKernel(program_.get(), name_.c_str(), &code));
  if (code != CL_SUCCESS) {
    TVM_FFI_THROW(RuntimeError) << "The source of kernel " << name_
                                << " does not define it: clCreateKernel failed with "
                                << error_name(code);
  }
  ADRENOC_CL_CALL(clGetKernelWorkGroupInfo, instance_.handle.get(), id, CL_KERNEL_WORK_GROUP_SIZE,
                  sizeof(max_work_group_size_), &max_work_group_size_, nullptr);
}

std::string Kernel::build_log() const {
  size_t size = 0;
  const cl_device_id id = device_.id();
  if (api().clGetProgramBuildInfo(program_.get(), id, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size) !=
      CL_SUCCESS) {
    return "(the driver gives no build log)";
  }
  std::string log(size, '\0');
  ADRENOC_CL_CALL(clGetProgramBuildInfo, program_.get(), id, CL_PROGRAM_BUILD_LOG, size, log.data(),
                  nullptr);
  while (!log.empty() && log.back() == '\0') log.pop_back();
  return log.empty() ? "(the build log is empty)" : log;
}

void Kernel::check_work_group(const WorkSize& work) const {
  size_t items = 1;
  for (cl_uint i = 0; i < work.dimensions; ++i) {
    items *= work.local[i];
    const size_t limit = device_.info().max_work_item_sizes[i];
    if (work.local[i] > limit) {
      TVM_FFI_THROW(ValueError) << "Kernel " << name_ << " has a work-group of "
                                << work_size_text(work) << " work-items, but "
                                << device_.info().name << " takes at most " << limit
                                << " in dimension " << i;
    }
  }
  if (items > max_work_group_size_) {
    TVM_FFI_THROW(ValueError) << "Kernel " << name_ << " has a work-group of "
                              << work_size_text(work) << " = " << items << " work-items, but "
                              << device_.info().name << " takes at most " << max_work_group_size_
                              << " for this kernel";
  }
}

void Kernel::launch(const WorkSize& work, const std::vector<KernelArgument>& arguments) {
  check_work_group(work);
  const QueueLock queue = device_.lock_queue();
  trace("launching kernel", name_);
  CallSites* sites = CallSites::current();
  KernelInstance* const own = sites == nullptr ? nullptr : sites->next(*this);
  KernelInstance& instance = own == nullptr ? instance_ : *own;
  for (size_t i = 0; i < arguments.size(); ++i) set_argument(instance, i, arguments[i]);
  cl_event event = nullptr;
  const bool recording = device_.profiler().is_recording();
  const cl_int code = api().clEnqueueNDRangeKernel(
      queue.get(), instance.handle.get(), work.dimensions, nullptr, work.global.data(),
      work.local.data(), 0, nullptr, recording ? &event : nullptr);
  if (code != CL_SUCCESS) {
    TVM_FFI_THROW(RuntimeError) << "Launch of kernel " << name_
                                << ": clEnqueueNDRangeKernel failed with " << error_name(code)
                                << ", work-group " << work_size_text(work);
  }
  if (recording) device_.profiler().record(name_, EventHandle(event));
  if (Capture* capture = Capture::current()) capture->add(device_, *this, work, arguments);
  device_.launched(queue.get(), 1);
}

// Drivers take about as long for an argument as for a launch, and between two runs few change.
void Kernel::set_argument(KernelInstance& instance, size_t index,
                          const KernelArgument& argument) const {
  if (index >= instance.kept.size()) instance.kept.resize(index + 1);
  KernelInstance::Kept wanted{argument.bytes, 0};
  if (argument.storage != nullptr) {
    wanted.value = (*argument.storage)->number;
  } else {
    std::memcpy(&wanted.value, argument.value, argument.bytes);
  }
  KernelInstance::Kept& kept = instance.kept[index];
  if (kept.bytes == wanted.bytes && kept.value == wanted.value) return;
  kept.bytes = 0;
  set_kernel_argument(instance.handle.get(), name_, index, argument);
  kept = wanted;
}

KernelHandle Kernel::new_handle() const {
  cl_int code = CL_SUCCESS;
  KernelHandle made(api().clCreateKernel(program_.get(), name_.c_str(), &code));
  check(code, "clCreateKernel");
  return made;
}

std::string Kernel::binary() const {
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

}  // namespace opencl
}  // namespace adrenoc_runtime
