// What a run does between its launches: copies, functions of the CPU, regions of OpenCL ML.
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <utility>
#include <vector>

#include "base/typed_function.h"
#include "launch/capture.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;

// Whether an argument may be kept: a struct that the caller made ends with the call.
bool can_be_kept(const ffi::AnyView& argument) {
  return argument.type_index() != ffi::TypeIndex::kTVMFFIDLTensorPtr;
}

// step(function, arguments...) calls the function, which writes some of its arguments.
void step(ffi::PackedArgs args, ffi::Any*) {
  if (args.size() == 0) TVM_FFI_THROW(ValueError) << "step takes a function and its arguments";
  const auto function = args[0].cast<ffi::Function>();
  Capture* const capture = Capture::current();
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

TVM_FFI_STATIC_INIT_BLOCK() {
  publish_packed("adrenoc.opencl.step", step);
}

}  // namespace adrenoc_runtime::opencl
