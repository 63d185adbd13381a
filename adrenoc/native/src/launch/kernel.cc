#include "launch/kernel.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <cstring>
#include <utility>

#include "base/typed_function.h"
#include "files/file.h"
#include "launch/cancelling.h"

namespace adrenoc_runtime::opencl {
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

namespace ffi = tvm::ffi;

// What a run does between its launches: copies, functions of the CPU, regions of OpenCL ML.
// step(function, arguments...) calls the function, which writes some of its arguments.
void step(ffi::PackedArgs args, ffi::Any*) {
  if (args.size() == 0) TVM_FFI_THROW(ValueError) << "step takes a function and its arguments";
  const auto function = args[0].cast<ffi::Function>();
  Capture* const capture = CaptureScope::current();
  bool is_kept = capture != nullptr;
  for (int i = 1; i < args.size(); ++i) {
    // A struct that the caller made ends with the call.
    is_kept = is_kept && args[i].type_index() != ffi::TypeIndex::kTVMFFIDLTensorPtr;
  }
  if (!is_kept) {
    if (capture != nullptr) capture->obstruct("a step between its launches cannot be repeated");
    ffi::Any nothing;
    function.CallPacked(args.data() + 1, args.size() - 1, &nothing);
    return;
  }
  std::vector<ffi::Any> held;
  for (int i = 1; i < args.size(); ++i) held.emplace_back(args[i]);
  capture->add_step([function, held = std::move(held)] {
    const std::vector<ffi::AnyView> views(held.begin(), held.end());
    ffi::Any nothing;
    function.CallPacked(views.data(), static_cast<int>(views.size()), &nothing);
  });
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

Kernel::Kernel(Device& device, std::string name, std::shared_ptr<const BuiltProgram> program,
               KernelText text, size_t arguments)
    : device_(device),
      name_(std::move(name)),
      program_(std::move(program)),
      text_(std::move(text)),
      arguments_(arguments) {
  instance_.handle = new_handle();
  ADRENOC_CL_CALL(clGetKernelWorkGroupInfo, instance_.handle.get(), device_.id(),
                  CL_KERNEL_WORK_GROUP_SIZE, sizeof(max_work_group_size_), &max_work_group_size_,
                  nullptr);
  check_local_memory();
}

void Kernel::check_local_memory() const {
  cl_ulong needed = 0;
  const cl_int code =
      api().clGetKernelWorkGroupInfo(instance_.handle.get(), device_.id(), CL_KERNEL_LOCAL_MEM_SIZE,
                                     sizeof(needed), &needed, nullptr);
  const cl_ulong there = device_.info().local_memory_bytes;
  if (code != CL_SUCCESS || needed <= there) return;
  TVM_FFI_THROW(RuntimeError) << "Kernel " << name_ << " shares " << needed
                              << " bytes in local memory, but " << device_.info().name << " has "
                              << there << "; compile the model for this GPU";
}

size_t Kernel::check_work_group(const WorkSize& work) const {
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
  if (items > device_.info().max_work_group_size) {
    refuse_work_group(work, items, device_.info().max_work_group_size, "");
  }
  return items;
}

void Kernel::refuse_work_group(const WorkSize& work, size_t items, size_t limit,
                               const char* of_what) const {
  TVM_FFI_THROW(ValueError) << "Kernel " << name_ << " has a work-group of " << work_size_text(work)
                            << " = " << items << " work-items, but " << device_.info().name
                            << " takes at most " << limit << of_what;
}

void Kernel::launch(const WorkSize& work, const std::vector<KernelArgument>& arguments) {
  const size_t items = check_work_group(work);
  end_within_if_cancelled();
  const QueueLock queue = device_.lock_queue();
  trace("launching kernel", name_);
  CallSites* sites = CallSitesScope::current();
  KernelInstance* const own = sites == nullptr ? nullptr : sites->next(*this);
  KernelInstance& instance = own == nullptr ? instance_ : *own;
  for (size_t i = 0; i < arguments.size(); ++i) set_argument(instance, i, arguments[i]);
  cl_event event = nullptr;
  const bool recording = device_.profiler().is_recording();
  const cl_int code = api().clEnqueueNDRangeKernel(
      queue.get(), instance.handle.get(), work.dimensions, nullptr, work.global.data(),
      work.local.data(), 0, nullptr, recording ? &event : nullptr);
  // Drivers must refuse what is more than they say that a kernel takes; some say too little, and
  // run more.  So it is the launch that tells.
  if (code == CL_INVALID_WORK_GROUP_SIZE && items > max_work_group_size_) {
    refuse_work_group(work, items, max_work_group_size_, " for this kernel");
  }
  if (code != CL_SUCCESS) {
    TVM_FFI_THROW(RuntimeError) << "Launch of kernel " << name_
                                << ": clEnqueueNDRangeKernel failed with " << error_name(code)
                                << ", work-group " << work_size_text(work);
  }
  if (recording) device_.profiler().record(name_, EventHandle(event));
  if (Capture* capture = CaptureScope::current()) capture->add(device_, *this, work, arguments);
  device_.launched(queue.get(), 1);
  // How long it takes is not known yet, so that each is a piece.
  if (own_piece_limit_ms() > 0) ADRENOC_CL_CALL(clFinish, queue.get());
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
  check_kind(index, argument);
  set_kernel_argument(instance.handle.get(), name_, index, argument);
  kept = wanted;
}

// Some drivers take whatever memory is given, and crash when the kernel runs.
void Kernel::check_kind(size_t index, const KernelArgument& argument) const {
  if (argument.storage == nullptr || index >= text_.images.size()) return;
  const bool wants_image = text_.images[index];
  if ((*argument.storage)->spec.is_image() == wants_image) return;
  TVM_FFI_THROW(RuntimeError) << "Argument " << index << " of kernel " << name_ << ": expected "
                              << (wants_image ? "an image" : "a buffer") << ", got "
                              << argument_text(argument);
}

KernelHandle Kernel::new_handle() const {
  KernelHandle made = program_->new_kernel(text_.program);
  for (size_t i = 0; i < text_.constants.size(); ++i) {
    const KernelConstant& constant = text_.constants[i];
    set_kernel_argument(made.get(), name_, arguments_ + i,
                        {constant.bytes, constant.value.data(), nullptr});
  }
  return made;
}

KernelInstance* CallSites::next(const Kernel& kernel) {
  if (is_exhausted_) return nullptr;
  if (next_ == sites_.size()) sites_.push_back({nullptr, {}});
  Site& site = sites_[next_++];
  if (site.kernel != &kernel) {  // the first run, or one that takes another way
    try {
      site = {&kernel, {kernel.new_handle(), {}}};
    } catch (const tvm::ffi::Error&) {
      is_exhausted_ = true;
      return nullptr;
    }
  }
  return &site.instance;
}

void Capture::add(const Device& device, Kernel& kernel, const WorkSize& work,
                  const std::vector<KernelArgument>& arguments) {
  if (&device != &device_) obstruct("it launches kernels on another device too");
  if (!obstacle_.empty()) return;
  CapturedLaunch launch{&kernel, work, {}};
  for (const KernelArgument& argument : arguments) {
    CapturedArgument kept{argument.bytes, {}, nullptr};
    if (argument.storage != nullptr) {
      kept.storage = *argument.storage;
    } else {
      std::memcpy(kept.scalar.data(), argument.value, argument.bytes);
    }
    launch.arguments.push_back(std::move(kept));
  }
  launches_.push_back(std::move(launch));
}

void Capture::add_step(std::function<void()> step) {
  {
    const CaptureScope closed(nullptr);
    step();
  }
  if (obstacle_.empty()) steps_.push_back({launches_.size(), std::move(step)});
}

void Capture::obstruct(const std::string& reason) {
  if (obstacle_.empty()) obstacle_ = reason;
  launches_.clear();
  steps_.clear();
}

TVM_FFI_STATIC_INIT_BLOCK() { publish_packed("adrenoc.opencl.step", step); }

}  // namespace adrenoc_runtime::opencl
