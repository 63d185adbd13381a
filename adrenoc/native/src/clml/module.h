// The TVM module of kind "clml": one region of a model, run by an OpenCL ML library.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/string.h>

namespace adrenoc_runtime::clml {

// Throws Failure for a damaged graph.
[[nodiscard]] tvm::ffi::Module make_clml_module(const tvm::ffi::String& symbol,
                                                const tvm::ffi::String& graph,
                                                const tvm::ffi::Array<tvm::ffi::String>& constants);

// Makes every region of a loaded module ready, and tells what became of each as JSON.  Their
// constants must be there, which they are once a virtual machine has been made of the module.
[[nodiscard]] tvm::ffi::String prepare_regions(const tvm::ffi::Module& module, int device_id);

}  // namespace adrenoc_runtime::clml
