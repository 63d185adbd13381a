// Which runtime this is, for C programs and for TVM's clients.
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include "adrenoc.h"
#include "bundle.h"

const char* adrenoc_runtime_version(void) { return ADRENOC_STAMP; }

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("adrenoc.runtime.version", [] { return tvm::ffi::String(adrenoc_runtime_version()); })
      .def("adrenoc.runtime.machine", [] { return tvm::ffi::String(adrenoc::kMachine); });
}
