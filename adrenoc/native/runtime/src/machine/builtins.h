// What programs call that is neither a kernel nor code of the model: memory, shapes, tuples.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/function.h>

#include <string_view>

namespace adrenoc_runtime {

class Machine;

using Builtin = tvm::ffi::Any(const Machine& machine, tvm::ffi::PackedArgs args);

// Null for another name.
[[nodiscard]] Builtin* find_builtin(std::string_view name);

}  // namespace adrenoc_runtime
