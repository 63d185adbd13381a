#include "launch/capture.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <cstring>
#include <utility>

#include "base/typed_function.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;

// Whether an argument may be kept: a struct that the caller made ends with the call.
bool can_be_kept(const ffi::AnyView& argument) {
  return argument.type_index() != ffi::TypeIndex::kTVMFFIDLTensorPtr;
}

// What a run does between its launches: copies, functions of the CPU, regions of OpenCL ML.
// step(function, arguments...) calls the function, which writes some of its arguments.
void step(ffi::PackedArgs args, ffi::Any*) {
  if (args.size() == 0) TVM_FFI_THROW(ValueError) << "step takes a function and its arguments";
  const auto function = args[0].cast<ffi::Function>();
  Capture* const capture = CaptureScope::current();
  bool is_kept = capture != nullptr;
  for (int i = 1; i < args.size(); ++i) is_kept = is_kept && can_be_kept(args[i]);
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
