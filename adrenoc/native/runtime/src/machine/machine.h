// Runs the program of a model.so.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/memory/memory_manager.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "machine/executable.h"

namespace adrenoc_runtime {

class Machine;

// What programs call that is neither a kernel nor code of the model: memory, shapes, tuples.
using Builtin = tvm::ffi::Any(const Machine& machine, tvm::ffi::PackedArgs args);

// Null for another name.
[[nodiscard]] Builtin* find_builtin(std::string_view name);

// Under the names that a program calls TVM's own machine by: "vm_initialization" takes devices, and
// functions of the program have theirs.
class Machine final : public tvm::ffi::ModuleObj {
 public:
  Machine(std::shared_ptr<const Executable> executable, tvm::ffi::Array<tvm::ffi::Any> imports);

  [[nodiscard]] const char* kind() const final { return "adrenoc.machine"; }
  [[nodiscard]] tvm::ffi::Optional<tvm::ffi::Function> GetFunction(
      const tvm::ffi::String& name) final;

  // Memory of one of the devices.  Throws ValueError.
  [[nodiscard]] tvm::runtime::memory::Storage allocate(const tvm::ffi::Shape& shape, int64_t device,
                                                       DLDataType dtype,
                                                       const std::string& scope) const;

 private:
  // What a number of a function stands for: one of the runtime's, any other, or the program's own.
  struct Callee {
    Builtin* builtin = nullptr;
    tvm::ffi::Any function{};  // nothing for the program's own
  };
  struct Place {
    DLDevice device;
    tvm::runtime::memory::Allocator* allocator;
  };
  using Registers = std::vector<tvm::ffi::Any>;

  void initialize(tvm::ffi::PackedArgs args);
  [[nodiscard]] Callee find(const std::string& name) const;
  [[nodiscard]] tvm::ffi::Any run(size_t function, tvm::ffi::PackedArgs args);
  [[nodiscard]] tvm::ffi::Any call(const Instruction& one, const Registers& registers,
                                   std::vector<tvm::ffi::AnyView>* values);
  [[nodiscard]] tvm::ffi::AnyView value(const Operand& operand, const Registers& registers);

  const std::shared_ptr<const Executable> executable_;
  std::vector<Place> places_;
  std::vector<Callee> callees_;
};

}  // namespace adrenoc_runtime
