#include "base/typed_function.h"

#include <tvm/ffi/error.h>

#include "base/failure.h"

namespace adrenoc_runtime {

namespace ffi = tvm::ffi;

ffi::Function packed(PackedCall call) {
  return ffi::Function::FromPacked(
      [call = std::move(call)](ffi::PackedArgs args, ffi::Any* result) {
        try {
          call(args, result);
        } catch (const Failure& failure) {
          TVM_FFI_THROW(ValueError) << failure.what();
        }
      });
}

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

ffi::Function function_of(const ffi::AnyView& given, const ffi::String& name) {
  if (const auto function = given.as<ffi::Function>()) return *function;
  const auto found = given.cast<ffi::Module>()->GetFunction(name, false);
  if (!found.has_value()) {
    TVM_FFI_THROW(ValueError) << "The module has no function `" << name << "`";
  }
  return *found;
}

std::vector<ffi::Module> modules_of(const ffi::Module& module, std::string_view kind) {
  std::vector<ffi::Module> found;
  if (module->kind() == kind) found.push_back(module);
  for (const ffi::Any& import : module->imports()) {
    const std::vector<ffi::Module> more = modules_of(import.cast<ffi::Module>(), kind);
    found.insert(found.end(), more.begin(), more.end());
  }
  return found;
}

}  // namespace adrenoc_runtime
