// Which runtime this is and on what machine it runs, for TVM's clients.
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/string.h>

#include "base/machine.h"
#include "base/stamp.h"
#include "base/typed_function.h"
#include "opencl/gpu_state.h"

namespace adrenoc_runtime {

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace ffi = tvm::ffi;
  publish("adrenoc.runtime.version", [] { return ffi::String(stamp()); });
  publish("adrenoc.runtime.machine", [] { return ffi::String(kMachine); });
  publish("adrenoc.runtime.gpu_state",
          [](const ffi::String& root) { return ffi::json::Stringify(gpu_state(root)); });
}

}  // namespace adrenoc_runtime
