// Bound runs for Python and RPC clients: modules of kind "adrenoc.run".
#include <tvm/ffi/cast.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include "base/typed_function.h"
#include "launch/bound_run.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;

// Functions: "run" gives the results, "report" JSON (LaunchReport), "rebind" takes the number of an
// argument and another tensor for it, "forget" gives memory back.
class BoundRunModule final : public ffi::ModuleObj {
 public:
  BoundRunModule(const ffi::Function& main, const std::vector<ffi::AnyView>& arguments,
                 int device_id, Recording wish)
      : run_(main, arguments, device_id, wish) {}

  [[nodiscard]] const char* kind() const final { return "adrenoc.run"; }
  [[nodiscard]] int GetPropertyMask() const final { return ffi::Module::kRunnable; }

  [[nodiscard]] ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    auto self = ffi::GetObjectPtr<BoundRunModule>(this);
    if (name == "run") {
      return packed([self](ffi::PackedArgs, ffi::Any* result) { *result = self->run_.run(); });
    }
    if (name == "report") {
      return typed("report",
                   [self] { return ffi::json::Stringify(self->run_.report().to_json()); });
    }
    if (name == "rebind") {
      return typed("rebind", [self](int64_t index, const tvm::runtime::Tensor& tensor) {
        self->run_.rebind(static_cast<size_t>(index), tensor);
      });
    }
    if (name == "forget") {
      return typed("forget", [self] { self->run_.forget(); });
    }
    return std::nullopt;
  }

 private:
  BoundRun run_;
};

// bind_run(module, name of its function, OpenCL device, recording, arguments...)
void bind_run(ffi::PackedArgs args, ffi::Any* result) {
  constexpr int kOwn = 4;
  if (args.size() < kOwn) {
    TVM_FFI_THROW(ValueError) << "bind_run takes a module, a function, a device, how to record, "
                                 "and the function's arguments";
  }
  std::vector<ffi::AnyView> arguments;
  for (int i = kOwn; i < args.size(); ++i) arguments.push_back(args[i]);
  *result = ffi::Module(ffi::make_object<BoundRunModule>(
      function_of(args[0], args[1].cast<ffi::String>()), arguments, args[2].cast<int>(),
      recording_of(args[3].cast<std::string>())));
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  publish_packed("adrenoc.opencl.bind_run", bind_run);
}

}  // namespace adrenoc_runtime::opencl
