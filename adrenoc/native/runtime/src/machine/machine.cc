#include "machine/machine.h"

#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/error.h>

#include <utility>

#include "base/typed_function.h"

namespace adrenoc_runtime {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::memory::AllocatorType;
using tvm::runtime::memory::MemoryManager;
using tvm::runtime::memory::Storage;

// The program as model.so holds it, which machines are made of.
class ProgramModule final : public ffi::ModuleObj {
 public:
  explicit ProgramModule(Executable executable)
      : executable_(std::make_shared<const Executable>(std::move(executable))) {}
  [[nodiscard]] const char* kind() const final { return "relax.VMExecutable"; }
  [[nodiscard]] ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    if (name != "vm_load_executable") return std::nullopt;
    return typed("vm_load_executable", [self = ffi::GetObjectPtr<ProgramModule>(this)] {
      return ffi::Module(ffi::make_object<Machine>(self->executable_, self->imports()));
    });
  }

 private:
  std::shared_ptr<const Executable> executable_;
};

}  // namespace

Machine::Machine(std::shared_ptr<const Executable> executable, ffi::Array<ffi::Any> imports)
    : executable_(std::move(executable)) {
  imports_ = std::move(imports);
}

ffi::Optional<ffi::Function> Machine::GetFunction(const ffi::String& name) {
  auto self = ffi::GetObjectPtr<Machine>(this);
  if (name == "vm_initialization") {
    return packed([self](ffi::PackedArgs args, ffi::Any*) { self->initialize(args); });
  }
  const std::vector<FunctionInfo>& functions = executable_->functions;
  for (size_t i = 0; i < functions.size(); ++i) {
    if (functions[i].kind != FunctionInfo::Kind::kOwn || name != functions[i].name) continue;
    return packed(
        [self, i](ffi::PackedArgs args, ffi::Any* result) { *result = self->run(i, args); });
  }
  return std::nullopt;
}

void Machine::initialize(ffi::PackedArgs args) {
  for (int i = 0; i + 2 < args.size(); i += 3) {
    const DLDevice device{static_cast<DLDeviceType>(args[i].cast<int>()), args[i + 1].cast<int>()};
    const auto type = static_cast<AllocatorType>(args[i + 2].cast<int>());
    places_.push_back({device, MemoryManager::GetOrCreateAllocator(device, type)});
  }
  for (const FunctionInfo& info : executable_->functions) {
    callees_.push_back(info.kind == FunctionInfo::Kind::kOwn ? Callee{} : find(info.name));
  }
}

Machine::Callee Machine::find(const std::string& name) const {
  for (const ffi::Any& module : imports_) {
    const auto function = module.cast<ffi::Module>()->GetFunction(name, true);
    if (function.has_value()) return {nullptr, *function};
  }
  if (Builtin* builtin = find_builtin(name)) return {builtin};
  const auto function = ffi::Function::GetGlobal(name);
  if (function.has_value()) return {nullptr, *function};
  TVM_FFI_THROW(ValueError) << "the program calls `" << name
                            << "`, which this runtime does not have: it is older than the compiler";
  TVM_FFI_UNREACHABLE();
}

Storage Machine::allocate(const ffi::Shape& shape, int64_t device, DLDataType dtype,
                          const std::string& scope) const {
  if (device < 0 || device >= static_cast<int64_t>(places_.size())) {
    TVM_FFI_THROW(ValueError) << "the program wants memory of device " << device << ", expected 0 to "
                              << static_cast<int64_t>(places_.size()) - 1;
  }
  const Place& place = places_[static_cast<size_t>(device)];
  return Storage(place.allocator->Alloc(place.device, shape, dtype, scope), place.allocator);
}

ffi::AnyView Machine::value(const Operand& operand, const Registers& registers) {
  switch (operand.kind) {
    case Operand::Kind::kNumber:
      return operand.value;
    case Operand::Kind::kConstant:
      return executable_->constants[operand.value];
    case Operand::Kind::kFunction:
      return callees_[operand.value].function;
    default:
      if (operand.value == Operand::kMachine) return static_cast<void*>(this);
      if (operand.value == Operand::kNothing) return nullptr;
      return registers[operand.value];
  }
}

ffi::Any Machine::call(const Instruction& one, const Registers& registers,
                       std::vector<ffi::AnyView>* values) {
  values->clear();
  for (const Operand& operand : one.operands) values->push_back(value(operand, registers));
  const ffi::PackedArgs args(values->data(), static_cast<int>(values->size()));
  const Callee& callee = callees_[one.function];
  if (callee.builtin != nullptr) return callee.builtin(*this, args);
  if (callee.function == nullptr) return run(static_cast<size_t>(one.function), args);
  ffi::Any result;
  callee.function.cast<ffi::Function>().CallPacked(args, &result);
  return result;
}

ffi::Any Machine::run(size_t function, ffi::PackedArgs args) {
  const FunctionInfo& info = executable_->functions[function];
  if (args.size() != info.arguments) {
    TVM_FFI_THROW(TypeError) << "Function `" << info.name << "` of the program takes "
                             << info.arguments << " arguments, got " << args.size();
  }
  Registers registers(static_cast<size_t>(info.registers));
  for (int i = 0; i < args.size(); ++i) registers[i] = args[i];
  std::vector<ffi::AnyView> values;
  for (int64_t place = info.begin;;) {
    const Instruction& one = executable_->instructions[place];
    switch (one.kind) {
      case Instruction::Kind::kCall: {
        ffi::Any result = call(one, registers, &values);
        if (one.target < Operand::kNothing) registers[one.target] = std::move(result);
        ++place;
        break;
      }
      case Instruction::Kind::kReturn:
        return value(Operand(one.target), registers);
      case Instruction::Kind::kGoTo:
        place = one.next;
        break;
      case Instruction::Kind::kIf:
        place = registers[one.target].cast<int64_t>() != 0 ? place + 1 : one.next;
        break;
    }
  }
}

TVM_FFI_STATIC_INIT_BLOCK() {
  publish("ffi.Module.load_from_bytes.relax.VMExecutable", [](const ffi::Bytes& bytes) {
    return ffi::Module(ffi::make_object<ProgramModule>(read_executable(bytes)));
  });
}

}  // namespace adrenoc_runtime
