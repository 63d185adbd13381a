// Functions that callers know by a name, made of typed ones.  Each type of an argument has one
// reader, and all functions are one class: `tvm::ffi::Function::FromTyped` makes both anew for each
// function, twenty times the code.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/failure.h"

namespace adrenoc_runtime {

using PackedCall = std::function<void(tvm::ffi::PackedArgs args, tvm::ffi::Any* result)>;

namespace ffi = tvm::ffi;

// A Failure of ours becomes a ValueError of TVM's.
[[nodiscard]] inline tvm::ffi::Function packed(PackedCall call) {
  return ffi::Function::FromPacked(
      [call = std::move(call)](ffi::PackedArgs args, ffi::Any* result) {
        try {
          call(args, result);
        } catch (const Failure& failure) {
          TVM_FFI_THROW(ValueError) << failure.what();
        }
      });
}

// Throws where the name is taken and may not be overridden.
inline void publish_function(const char* name, const tvm::ffi::Function& function,
                             bool override = false) {
  ffi::Function::SetGlobal(name, function, override);
}

inline void publish_packed(const char* name, PackedCall call) {
  publish_function(name, packed(std::move(call)));
}

// Throws TypeError where `args` are not `expected` many.
inline void check_count(const char* name, size_t expected, tvm::ffi::PackedArgs args) {
  if (static_cast<size_t>(args.size()) == expected) return;
  TVM_FFI_THROW(TypeError) << "The function \"" << name << "\" was given " << args.size()
                           << " arguments, expected " << expected;
}

[[noreturn]] inline void refuse_argument(const char* name, int index, const std::string& expected,
                                         const std::string& given) {
  TVM_FFI_THROW(TypeError) << "Argument " << index << " of the function \"" << name
                           << "\" is of the type " << given << ", expected " << expected;
}

// Throws TypeError where the argument is no T.
template <typename T>
[[gnu::noinline]] T argument(const char* name, tvm::ffi::PackedArgs args, int index) {
  std::optional<T> taken = args[index].try_cast<T>();
  if (!taken.has_value()) {
    refuse_argument(name, index, tvm::ffi::details::Type2Str<T>::v(), args[index].GetTypeKey());
  }
  return *std::move(taken);
}

template <typename Info, typename F, size_t... I>
void call_typed(const char* name, const F& function, tvm::ffi::PackedArgs args,
                tvm::ffi::Any* result, std::index_sequence<I...>) {
  check_count(name, sizeof...(I), args);
  using Arguments = typename Info::ArgType;
  const auto call = [&] {
    return function(argument<std::decay_t<std::tuple_element_t<I, Arguments>>>(
        name, args, static_cast<int>(I))...);
  };
  if constexpr (std::is_void_v<typename Info::RetType>) {
    call();
  } else {
    *result = call();
  }
}

// The function `name`, which errors name and nothing keeps: a literal.
template <typename F>
[[nodiscard]] tvm::ffi::Function typed(const char* name, F function) {
  using Info = tvm::ffi::details::FunctionInfo<F>;
  return packed([name, function](tvm::ffi::PackedArgs args, tvm::ffi::Any* result) {
    call_typed<Info>(name, function, args, result, std::make_index_sequence<Info::num_args>{});
  });
}

// The functions of a module, of which `found` is the one of the name that is asked for.
class FunctionNamed {
 public:
  explicit FunctionNamed(const tvm::ffi::String& wanted) : wanted_(wanted) {}

  template <typename F>
  FunctionNamed& typed(const char* name, F function) {
    if (wanted_ == name) found = adrenoc_runtime::typed(name, std::move(function));
    return *this;
  }
  FunctionNamed& packed(const char* name, PackedCall call) {
    if (wanted_ == name) found = adrenoc_runtime::packed(std::move(call));
    return *this;
  }

  tvm::ffi::Optional<tvm::ffi::Function> found;

 private:
  const tvm::ffi::String& wanted_;
};

// Registers the function `name` for all of the process.
template <typename F>
void publish(const char* name, F function) {
  publish_function(name, typed(name, function));
}

// A function, or that of a module by its name.  Throws ValueError where it has none.
[[nodiscard]] inline tvm::ffi::Function function_of(const tvm::ffi::AnyView& given,
                                                    const tvm::ffi::String& name) {
  if (const auto function = given.as<ffi::Function>()) return *function;
  const auto found = given.cast<ffi::Module>()->GetFunction(name, false);
  if (!found.has_value()) {
    TVM_FFI_THROW(ValueError) << "The module has no function `" << name << "`";
  }
  return *found;
}

// Of a module and its imports, those of a kind.  By its name, and so are their functions called,
// because module classes that come from a library carry no C++ type information.
[[nodiscard]] inline std::vector<tvm::ffi::Module> modules_of(const tvm::ffi::Module& module,
                                                              std::string_view kind) {
  std::vector<ffi::Module> found;
  if (module->kind() == kind) found.push_back(module);
  for (const ffi::Any& import : module->imports()) {
    const std::vector<ffi::Module> more = modules_of(import.cast<ffi::Module>(), kind);
    found.insert(found.end(), more.begin(), more.end());
  }
  return found;
}

}  // namespace adrenoc_runtime
