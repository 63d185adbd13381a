// What to run, as callers name it.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

namespace adrenoc_runtime::opencl {

// A function, or that of a module by its name.  Throws ValueError where it has none.
inline tvm::ffi::Function function_of(const tvm::ffi::AnyView& given,
                                      const tvm::ffi::String& name) {
  if (const auto function = given.as<tvm::ffi::Function>()) return *function;
  const auto found = given.cast<tvm::ffi::Module>()->GetFunction(name, false);
  if (!found.has_value()) {
    TVM_FFI_THROW(ValueError) << "The module has no function `" << name << "`";
  }
  return *found;
}

}  // namespace adrenoc_runtime::opencl
