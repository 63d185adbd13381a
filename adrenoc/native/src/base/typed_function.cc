#include "base/typed_function.h"

#include <tvm/ffi/error.h>

namespace adrenoc_runtime {

namespace ffi = tvm::ffi;

ffi::Function packed(PackedCall call) { return ffi::Function::FromPacked(std::move(call)); }

void publish_function(const char* name, const ffi::Function& function, bool override) {
  ffi::Function::SetGlobal(name, function, override);
}

void publish_packed(const char* name, PackedCall call) {
  publish_function(name, packed(std::move(call)));
}

void check_count(const char* name, size_t expected, ffi::PackedArgs args) {
  if (static_cast<size_t>(args.size()) == expected) return;
  TVM_FFI_THROW(TypeError) << "The function \"" << name << "\" was given " << args.size()
                           << " arguments, expected " << expected;
}

void refuse_argument(const char* name, int index, const std::string& expected,
                     const std::string& given) {
  TVM_FFI_THROW(TypeError) << "Argument " << index << " of the function \"" << name
                           << "\" is of the type " << given << ", expected " << expected;
}

}  // namespace adrenoc_runtime
