#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/runtime/memory/memory_manager.h>
#include <tvm/runtime/tensor.h>

#include <string>
#include <utility>

#include "base/typed_function.h"
#include "machine/machine.h"

namespace adrenoc_runtime {
namespace {

namespace ffi = tvm::ffi;
using ffi::Any;
using ffi::AnyView;
using ffi::PackedArgs;
using tvm::runtime::memory::Storage;

// `place` says where in the model a check stands, as the compiler wrote it behind its arguments.
[[noreturn]] void wrong(const AnyView& place, const std::string& what) {
  const auto text = place.as<ffi::String>();
  TVM_FFI_THROW(ValueError) << (text.has_value() ? std::string(*text) + ": " : "") << what;
  TVM_FFI_UNREACHABLE();
}

// alloc_storage(machine, shape, device, dtype, scope)
Any alloc_storage(const Machine& machine, PackedArgs args) {
  return machine.allocate(args[1].cast<ffi::Shape>(), args[2].cast<int64_t>(),
                          args[3].cast<DLDataType>(), args[4].cast<std::string>());
}

// alloc_tensor(storage, offset, shape, dtype[, scope])
Any alloc_tensor(const Machine&, PackedArgs args) {
  const auto storage = args[0].cast<Storage>();
  const auto offset = args[1].cast<int64_t>();
  auto shape = args[2].cast<ffi::Shape>();
  const auto dtype = args[3].cast<DLDataType>();
  if (args.size() < 5) return storage->AllocTensor(offset, std::move(shape), dtype);
  return storage->AllocTensorScoped(offset, std::move(shape), dtype, args[4].cast<ffi::String>());
}

// check_tensor_info(tensor, rank, dtype, place)
Any check_tensor_info(const Machine&, PackedArgs args) {
  const auto tensor = args[0].try_cast<DLTensor*>();
  if (!tensor.has_value()) wrong(args[3], "got " + args[0].GetTypeKey() + ", expected a tensor");
  const int rank = args[1].cast<int>();
  if ((*tensor)->ndim != rank) {
    wrong(args[3], "the tensor's rank is " + std::to_string((*tensor)->ndim) + ", expected " +
                       std::to_string(rank));
  }
  const auto dtype = args[2].cast<DLDataType>();
  if ((*tensor)->dtype != dtype) {
    wrong(args[3], "the tensor's dtype is " +
                       std::string(ffi::DLDataTypeToString((*tensor)->dtype)) + ", expected " +
                       std::string(ffi::DLDataTypeToString(dtype)));
  }
  return nullptr;
}

// match_shape(tensor, nothing, rank, (0, number) of each extent, place), whose rank was checked.
// Programs with extents that are no numbers ask for a heap of shapes first, which is not here.
Any match_shape(const Machine&, PackedArgs args) {
  const auto* tensor = args[0].cast<DLTensor*>();
  for (int i = 0; i < tensor->ndim; ++i) {
    const auto expected = args[4 + 2 * i].cast<int64_t>();
    if (tensor->shape[i] == expected) continue;
    wrong(args[args.size() - 1], "extent " + std::to_string(i) + " is " +
                                     std::to_string(tensor->shape[i]) + ", expected " +
                                     std::to_string(expected));
  }
  return nullptr;
}

Any make_tuple(const Machine&, PackedArgs args) {
  ffi::Array<Any> tuple;
  for (int i = 0; i < args.size(); ++i) tuple.push_back(args[i]);
  return tuple;
}

Any copy(const Machine&, PackedArgs args) { return args[0]; }
Any null_value(const Machine&, PackedArgs) { return nullptr; }
// Whether a region runs by OpenCL ML, which its module answers.
Any read_if_cond(const Machine&, PackedArgs args) { return args[0].cast<bool>(); }

struct Named {
  std::string_view name;
  Builtin* builtin;
};

// What `emit_relax` gives rise to, and no more of what TVM's machine has.
constexpr Named kBuiltins[] = {
    {"vm.builtin.alloc_storage", alloc_storage},
    {"vm.builtin.alloc_tensor", alloc_tensor},
    {"vm.builtin.check_tensor_info", check_tensor_info},
    {"vm.builtin.copy", copy},
    {"vm.builtin.make_tuple", make_tuple},
    {"vm.builtin.match_shape", match_shape},
    {"vm.builtin.null_value", null_value},
    {"vm.builtin.read_if_cond", read_if_cond},
};

}  // namespace

// Programs hand it on as a function.  TVM registers it with others that none calls.
TVM_FFI_STATIC_INIT_BLOCK() {
  publish("runtime.TVMTensorCopyFromTo", [](DLTensor* from, DLTensor* to) {
    tvm::runtime::Tensor::CopyFromTo(from, to);
  });
}

Builtin* find_builtin(std::string_view name) {
  for (const auto& [known, builtin] : kBuiltins) {
    if (known == name) return builtin;
  }
  return nullptr;
}

}  // namespace adrenoc_runtime
