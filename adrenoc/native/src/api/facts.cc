// Which runtime this is and on what machine it runs, for TVM's clients.
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include "base/machine.h"
#include "base/stamp.h"
#include "opencl/gpu_state.h"

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace ffi = tvm::ffi;
  ffi::reflection::GlobalDef()
      .def("adrenoc.runtime.version", [] { return ffi::String(adrenoc_runtime::stamp()); })
      .def("adrenoc.runtime.machine", [] { return ffi::String(adrenoc_runtime::kMachine); })
      .def("adrenoc.runtime.gpu_state", [](const ffi::String& root) {
        return ffi::json::Stringify(adrenoc_runtime::gpu_state(root));
      });
}
