// Kernels of programs that were built for a device, and notes of what a run launches, so that it
// can be launched again without the virtual machine.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/threads.h"
#include "opencl/cl_api.h"
#include "opencl/device.h"
#include "programs/built_program.h"
#include "programs/kernel_text.h"

namespace adrenoc_runtime::opencl {

// A scalar of at most 8 bytes, or memory.
struct KernelArgument {
  size_t bytes;
  const void* value;                                  // null for memory
  const std::shared_ptr<Storage>* storage = nullptr;  // null for a scalar
};

// Sets one argument of an OpenCL kernel.  Throws RuntimeError, naming `kernel`.
void set_kernel_argument(cl_kernel handle, const std::string& kernel, size_t index,
                         const KernelArgument& argument);

// Work-items: all of them, and those of one work-group.
struct WorkSize {
  cl_uint dimensions;
  std::array<size_t, 3> global;
  std::array<size_t, 3> local;
};

// An OpenCL object of a kernel, and what each of its arguments was set to last: the number of a
// storage, or the bits of a scalar.
struct KernelInstance {
  struct Kept {
    size_t bytes = 0;  // 0 while it is not known
    uint64_t value = 0;
  };

  KernelHandle handle;
  std::vector<Kept> kept;
};

class Kernel {
 public:
  // The kernel `text.program` of a program, known as `name`; its constants follow `arguments`
  // others.
  Kernel(Device& device, std::string name, std::shared_ptr<const BuiltProgram> program,
         KernelText text, size_t arguments);

  [[nodiscard]] const std::string& name() const { return name_; }

  // Another OpenCL object of the same kernel, with arguments of its own; its constants are set.
  [[nodiscard]] KernelHandle new_handle() const;

  // Throws ValueError when the work-group is larger than the device, or its driver for this kernel,
  // takes.
  void launch(const WorkSize& work, const std::vector<KernelArgument>& arguments);

 private:
  void check_local_memory() const;
  // The work-items of a group.  Throws ValueError where the device takes no such group.
  [[nodiscard]] size_t check_work_group(const WorkSize& work) const;
  [[noreturn]] void refuse_work_group(const WorkSize& work, size_t items, size_t limit,
                                      const char* of_what) const;
  // Throws RuntimeError for a buffer in place of an image, and the other way round.
  void check_kind(size_t index, const KernelArgument& argument) const;
  void set_argument(KernelInstance& instance, size_t index, const KernelArgument& argument) const;

  Device& device_;
  const std::string name_;
  const std::shared_ptr<const BuiltProgram> program_;
  const KernelText text_;
  const size_t arguments_;
  KernelInstance instance_;         // guarded by the device's lock_queue()
  size_t max_work_group_size_ = 0;  // by what the driver says, which may be too little
};

// Several launches of a run can share a kernel, each with arguments of its own.  With an object a
// launch these stay as they were set in the run before, as far as they are the same.
class CallSites {
 public:
  // A run begins.
  void begin() { next_ = 0; }

  // The object for the next launch of the run, which is one of `kernel`; null, now and later, once
  // the driver has made none.
  [[nodiscard]] KernelInstance* next(const Kernel& kernel);

 private:
  struct Site {
    const Kernel* kernel;
    KernelInstance instance;
  };
  std::vector<Site> sites_;
  size_t next_ = 0;
  bool is_exhausted_ = false;
};
using CallSitesScope = ThreadScope<CallSites>;

// An argument that outlives the run: the bytes of a scalar, or memory, which is held.
struct CapturedArgument {
  size_t bytes;
  std::array<char, 8> scalar;
  std::shared_ptr<Storage> storage;

  [[nodiscard]] KernelArgument get() const {
    return {bytes, scalar.data(), storage == nullptr ? nullptr : &storage};
  }
};

struct CapturedLaunch {
  Kernel* kernel;
  WorkSize work;
  std::vector<CapturedArgument> arguments;
};

// What a run does between its launches, with all that it takes to do it again.
struct CapturedStep {
  size_t launches_before;
  std::function<void()> again;
};

// The launches of one run on one device.  What a thread launches goes to the capture that it has
// open; so do the reasons why the launches alone would not make the run again.
class Capture {
 public:
  explicit Capture(const Device& device) : device_(device) {}

  void add(const Device& device, Kernel& kernel, const WorkSize& work,
           const std::vector<KernelArgument>& arguments);

  // Does what is no launch, and can be done again on the same memory.
  void add_step(std::function<void()> step);

  // The run does what is no launch and cannot be repeated; the first reason is kept.
  void obstruct(const std::string& reason);

  // The launches hold only as long as `holds` says so.
  void require(std::function<bool()> holds) { conditions_.push_back(std::move(holds)); }

  [[nodiscard]] const std::string& obstacle() const { return obstacle_; }
  [[nodiscard]] std::vector<CapturedLaunch>& launches() { return launches_; }
  [[nodiscard]] std::vector<CapturedStep>& steps() { return steps_; }
  [[nodiscard]] std::vector<std::function<bool()>>& conditions() { return conditions_; }

 private:
  const Device& device_;
  std::vector<CapturedLaunch> launches_;
  std::vector<CapturedStep> steps_;
  std::vector<std::function<bool()>> conditions_;
  std::string obstacle_;
};
using CaptureScope = ThreadScope<Capture>;

}  // namespace adrenoc_runtime::opencl
