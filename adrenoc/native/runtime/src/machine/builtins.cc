#include "machine/builtins.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/runtime/memory/memory_manager.h>
#include <tvm/runtime/tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "machine/machine.h"

namespace adrenoc_runtime {
namespace {

namespace ffi = tvm::ffi;
using ffi::Any;
using ffi::AnyView;
using ffi::PackedArgs;
using tvm::runtime::Tensor;
using tvm::runtime::memory::Storage;

// Where in the model a check stands, as the compiler wrote it behind the other arguments.
std::string place_of(PackedArgs args, int index) {
  if (index >= args.size()) return "";
  const auto text = args[index].as<ffi::String>();
  return text.has_value() ? std::string(*text) + ": " : "";
}

[[noreturn]] void wrong(const std::string& place, const std::string& what) {
  TVM_FFI_THROW(ValueError) << place << what;
  TVM_FFI_UNREACHABLE();
}

std::string text_of(int64_t number) { return std::to_string(number); }

// --- memory -----------------------------------------------------------------------------------------
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

// reshape(tensor, shape)
Any reshape(const Machine&, PackedArgs args) {
  const auto shape = args[1].cast<ffi::Shape>();
  const auto tensor = args[0].cast<Tensor>();
  return tensor.CreateView(shape, tensor->dtype);
}

Any copy(const Machine&, PackedArgs args) { return args[0]; }
Any null_value(const Machine&, PackedArgs) { return nullptr; }

// --- shapes: numbers that are known when a run begins lie in a heap ------------------------------
Any alloc_shape_heap(const Machine& machine, PackedArgs args) {
  const DLDataType dtype{kDLInt, 64, 1};
  const ffi::Shape shape{args[1].cast<int64_t>()};
  return machine.allocate(shape, -1, dtype, "global")->AllocTensor(0, shape, dtype);
}

int64_t* heap_of(const AnyView& heap) {
  const auto tensor = heap.try_cast<DLTensor*>();
  return tensor.has_value() && *tensor != nullptr ? static_cast<int64_t*>((*tensor)->data)
                                                  : nullptr;
}

enum class Match { kNumber = 0, kStore = 1, kAnything = 2, kStored = 3 };

void match_number(int64_t seen, int64_t* heap, Match how, int64_t given, const std::string& place,
                  const std::string& what) {
  if (how == Match::kAnything) return;
  if (how == Match::kStore) {
    heap[given] = seen;
    return;
  }
  const int64_t expected = how == Match::kStored ? heap[given] : given;
  if (seen != expected) wrong(place, what + " is " + text_of(seen) + ", expected " +
                                         text_of(expected));
}

// match_prim_value(number, heap, how, given, place)
Any match_prim_value(const Machine&, PackedArgs args) {
  match_number(args[0].cast<int64_t>(), heap_of(args[1]), static_cast<Match>(args[2].cast<int>()),
               args[3].cast<int64_t>(), place_of(args, 4), "a number");
  return nullptr;
}

ffi::Shape shape_from(const AnyView& any) {
  if (const auto tensor = any.try_cast<DLTensor*>()) {
    return ffi::Shape((*tensor)->shape, (*tensor)->shape + (*tensor)->ndim);
  }
  return any.cast<ffi::Shape>();
}

// match_shape(tensor or shape, heap, rank, (how, given) of each extent, place)
Any match_shape(const Machine&, PackedArgs args) {
  const ffi::Shape shape = shape_from(args[0]);
  const int rank = args[2].cast<int>();
  const std::string place = place_of(args, 3 + 2 * rank);
  if (static_cast<int64_t>(shape.size()) != rank) {
    wrong(place, "the rank is " + text_of(static_cast<int64_t>(shape.size())) + ", expected " +
                     text_of(rank));
  }
  for (int i = 0; i < rank; ++i) {
    match_number(shape[i], heap_of(args[1]), static_cast<Match>(args[3 + 2 * i].cast<int>()),
                 args[4 + 2 * i].cast<int64_t>(), place, "extent " + text_of(i));
  }
  return nullptr;
}

int64_t made_number(const int64_t* heap, bool is_stored, int64_t given) {
  return is_stored ? heap[given] : given;
}

// make_prim_value(heap, whether it is in the heap, given)
Any make_prim_value(const Machine&, PackedArgs args) {
  return made_number(heap_of(args[0]), args[1].cast<int>() != 0, args[2].cast<int64_t>());
}

// make_shape(heap, rank, (whether it is in the heap, given) of each extent)
Any make_shape(const Machine&, PackedArgs args) {
  std::vector<int64_t> shape;
  for (int i = 0; i < args[1].cast<int>(); ++i) {
    shape.push_back(made_number(heap_of(args[0]), args[2 + 2 * i].cast<int>() != 0,
                                args[3 + 2 * i].cast<int64_t>()));
  }
  return ffi::Shape(std::move(shape));
}

Any shape_of(const Machine&, PackedArgs args) { return shape_from(args[0]); }

// --- checks of what a function is given -------------------------------------------------------------
// check_tensor_info(tensor, rank or -1[, dtype], place)
Any check_tensor_info(const Machine&, PackedArgs args) {
  const std::string place = place_of(args, args.size() - 1);
  const auto tensor = args[0].try_cast<DLTensor*>();
  if (!tensor.has_value()) wrong(place, "got " + args[0].GetTypeKey() + ", expected a tensor");
  const int rank = args[1].cast<int>();
  if (rank != -1 && (*tensor)->ndim != rank) {
    wrong(place, "the tensor's rank is " + text_of((*tensor)->ndim) + ", expected " +
                     text_of(rank));
  }
  if (args.size() < 4 || args[2].type_index() == ffi::TypeIndex::kTVMFFINone) return nullptr;
  const auto dtype = args[2].cast<DLDataType>();
  if ((*tensor)->dtype != dtype) {
    wrong(place, "the tensor's dtype is " + std::string(ffi::DLDataTypeToString((*tensor)->dtype)) +
                     ", expected " + std::string(ffi::DLDataTypeToString(dtype)));
  }
  return nullptr;
}

// check_shape_info(shape, rank or -1, place)
Any check_shape_info(const Machine&, PackedArgs args) {
  const auto shape = args[0].as<ffi::Shape>();
  if (!shape.has_value()) {
    wrong(place_of(args, 2), "got " + args[0].GetTypeKey() + ", expected a shape");
  }
  const auto rank = args[1].cast<int64_t>();
  const auto seen = static_cast<int64_t>(shape->size());
  if (rank != -1 && seen != rank) {
    wrong(place_of(args, 2), "the rank is " + text_of(seen) + ", expected " + text_of(rank));
  }
  return nullptr;
}

// check_tuple_info(tuple, how many, place)
Any check_tuple_info(const Machine&, PackedArgs args) {
  const auto tuple = args[0].as<ffi::Array<Any>>();
  if (!tuple.has_value()) {
    wrong(place_of(args, 2), "got " + args[0].GetTypeKey() + ", expected a tuple");
  }
  const auto count = args[1].cast<int64_t>();
  const auto seen = static_cast<int64_t>(tuple->size());
  if (seen != count) {
    wrong(place_of(args, 2), "the tuple has " + text_of(seen) + " items, expected " +
                                 text_of(count));
  }
  return nullptr;
}

// check_prim_value_info(number, dtype, place)
Any check_prim_value_info(const Machine&, PackedArgs args) {
  const bool is_float = args[1].cast<DLDataType>().code == kDLFloat;
  if (is_float ? args[0].try_cast<double>().has_value() : args[0].try_cast<int64_t>().has_value()) {
    return nullptr;
  }
  wrong(place_of(args, 2), "got " + args[0].GetTypeKey() + ", expected a number");
}

// --- tuples, conditions, calls ----------------------------------------------------------------------
Any make_tuple(const Machine&, PackedArgs args) {
  ffi::Array<Any> tuple;
  for (int i = 0; i < args.size(); ++i) tuple.push_back(args[i]);
  return tuple;
}

Any tuple_getitem(const Machine&, PackedArgs args) {
  return args[0].cast<ffi::Array<Any>>()[args[1].cast<int64_t>()];
}

// read_if_cond(number, or a tensor on the CPU of one truth value)
Any read_if_cond(const Machine&, PackedArgs args) {
  if (const auto number = args[0].try_cast<int64_t>()) return *number != 0;
  const auto* tensor = args[0].cast<DLTensor*>();
  if (tensor->device.device_type != kDLCPU || (tensor->dtype.bits != 8 && tensor->dtype.bits != 1)) {
    wrong("", "a condition is " + std::string(ffi::DLDataTypeToString(tensor->dtype)) +
                  " on device type " + text_of(tensor->device.device_type) +
                  ", expected bool on the CPU");
  }
  return static_cast<const int8_t*>(tensor->data)[0] != 0;
}

// call_tir_dyn(function, tensors..., numbers as a shape)
Any call_tir_dyn(const Machine&, PackedArgs args) {
  const int last = args.size() - 1;
  const auto numbers = args[last].cast<ffi::Shape>();
  std::vector<AnyView> values(args.data() + 1, args.data() + last);
  for (const int64_t number : numbers) values.emplace_back(number);
  Any result;
  args[0].cast<ffi::Function>().CallPacked(values.data(), static_cast<int>(values.size()),
                                           &result);
  return result;
}

struct Named {
  std::string_view name;
  Builtin* builtin;
};

constexpr std::string_view kPrefix = "vm.builtin.";
constexpr Named kBuiltins[] = {
    {"alloc_shape_heap", alloc_shape_heap},
    {"alloc_storage", alloc_storage},
    {"alloc_tensor", alloc_tensor},
    {"call_tir_dyn", call_tir_dyn},
    {"check_prim_value_info", check_prim_value_info},
    {"check_shape_info", check_shape_info},
    {"check_tensor_info", check_tensor_info},
    {"check_tuple_info", check_tuple_info},
    {"copy", copy},
    {"make_prim_value", make_prim_value},
    {"make_shape", make_shape},
    {"make_tuple", make_tuple},
    {"match_prim_value", match_prim_value},
    {"match_shape", match_shape},
    {"null_value", null_value},
    {"read_if_cond", read_if_cond},
    {"reshape", reshape},
    {"shape_of", shape_of},
    {"tuple_getitem", tuple_getitem},
};

}  // namespace

Builtin* find_builtin(std::string_view name) {
  if (name.substr(0, kPrefix.size()) != kPrefix) return nullptr;
  name.remove_prefix(kPrefix.size());
  for (const auto& [known, builtin] : kBuiltins) {
    if (known == name) return builtin;
  }
  return nullptr;
}

}  // namespace adrenoc_runtime
