// A bundle's library, once in a process however often it is loaded.
//
// Code that TVM generates keeps the kernels that it has looked up in memory of the library, and a
// system maps a file once: kernels of the first module would be called by all, also when it is gone.
#pragma once

#include <tvm/ffi/extra/module.h>

#include <string>

namespace adrenoc_runtime::opencl {

// The module of the library at `path`: the one that is there already, as long as anybody has it.
[[nodiscard]] tvm::ffi::Module open_library(const std::string& path);

}  // namespace adrenoc_runtime::opencl
