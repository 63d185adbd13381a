// The program of a model.so: what TVM's compiler writes for its virtual machine, read, checked and
// run.
#include <tvm/ffi/any.h>
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>
#include <tvm/runtime/memory/memory_manager.h>
#include <tvm/runtime/tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/typed_function.h"
#include "files/byte_stream.h"

namespace adrenoc_runtime {
namespace {

namespace ffi = tvm::ffi;
using ffi::Any;
using ffi::AnyView;
using ffi::PackedArgs;
using opencl::ByteReader;
using tvm::runtime::memory::AllocatorType;
using tvm::runtime::memory::MemoryManager;
using tvm::runtime::memory::Storage;

struct FunctionInfo {
  // Of another module or of the runtime, or a list of instructions.
  enum class Kind : int32_t { kOther = 0, kOwn = 1 };
  Kind kind = Kind::kOther;
  std::string name;
  int64_t begin = 0;  // its instructions
  int64_t end = 0;
  int64_t arguments = 0;
  int64_t registers = 0;
};

// A word of an instruction that says what is passed: a kind in the upper 8 bits, and a number.
struct Operand {
  enum class Kind : uint8_t { kRegister = 0, kNumber = 1, kConstant = 2, kFunction = 3 };
  // Registers that stand for no value, and for the machine.
  static constexpr int64_t kNothing = int64_t{1} << 54;
  static constexpr int64_t kMachine = kNothing + 1;

  explicit Operand(int64_t word);
  Kind kind;
  int64_t value;
};

struct Instruction {
  enum class Kind : int64_t { kCall = 1, kReturn = 2, kGoTo = 3, kIf = 4 };
  Kind kind;
  int64_t target = 0;    // call: the register of the result; return and if: the one that is read
  int64_t function = 0;  // call
  int64_t next = 0;      // goto, and if where the register holds zero: the instruction
  std::vector<Operand> operands{};
};

struct Executable {
  std::vector<FunctionInfo> functions;
  std::vector<tvm::ffi::Any> constants;  // shapes, dtypes and texts
  std::vector<Instruction> instructions;
};

// Registers, functions, constants and jumps of what it gives are all there.  Throws ValueError.
[[nodiscard]] Executable read_executable(const tvm::ffi::Bytes& bytes);

class Machine;

// What programs call that is neither a kernel nor code of the model: memory, shapes, tuples.
using Builtin = tvm::ffi::Any(const Machine& machine, tvm::ffi::PackedArgs args);

// Null for another name.
[[nodiscard]] Builtin* find_builtin(std::string_view name);

// Under the names that a program calls TVM's own machine by: "vm_initialization" takes devices, and
// functions of the program have theirs.
class Machine final : public tvm::ffi::ModuleObj {
 public:
  Machine(std::shared_ptr<const Executable> executable, ffi::Array<ffi::Any> imports)
      : executable_(std::move(executable)) {
    imports_ = std::move(imports);
  }

  [[nodiscard]] const char* kind() const final { return "adrenoc.machine"; }
  [[nodiscard]] tvm::ffi::Optional<tvm::ffi::Function> GetFunction(const ffi::String& name) final {
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

  // Memory of one of the devices.  Throws ValueError.
  [[nodiscard]] tvm::runtime::memory::Storage allocate(const ffi::Shape& shape, int64_t device,
                                                       DLDataType dtype,
                                                       const std::string& scope) const {
    if (device < 0 || device >= static_cast<int64_t>(places_.size())) {
      TVM_FFI_THROW(ValueError) << "the program wants memory of device " << device
                                << ", expected 0 to " << static_cast<int64_t>(places_.size()) - 1;
    }
    const Place& place = places_[static_cast<size_t>(device)];
    return Storage(place.allocator->Alloc(place.device, shape, dtype, scope), place.allocator);
  }

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

  void initialize(ffi::PackedArgs args) {
    for (int i = 0; i + 2 < args.size(); i += 3) {
      const DLDevice device{static_cast<DLDeviceType>(args[i].cast<int>()),
                            args[i + 1].cast<int>()};
      const auto type = static_cast<AllocatorType>(args[i + 2].cast<int>());
      places_.push_back({device, MemoryManager::GetOrCreateAllocator(device, type)});
    }
    for (const FunctionInfo& info : executable_->functions) {
      callees_.push_back(info.kind == FunctionInfo::Kind::kOwn ? Callee{} : find(info.name));
    }
  }

  [[nodiscard]] Callee find(const std::string& name) const {
    for (const ffi::Any& module : imports_) {
      const auto function = module.cast<ffi::Module>()->GetFunction(name, true);
      if (function.has_value()) return {nullptr, *function};
    }
    if (Builtin* builtin = find_builtin(name)) return {builtin};
    const auto function = ffi::Function::GetGlobal(name);
    if (function.has_value()) return {nullptr, *function};
    TVM_FFI_THROW(ValueError)
        << "the program calls `" << name
        << "`, which this runtime does not have: it is older than the compiler";
    TVM_FFI_UNREACHABLE();
  }

  [[nodiscard]] tvm::ffi::Any run(size_t function, ffi::PackedArgs args) {
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
        case Instruction::Kind::kReturn: return value(Operand(one.target), registers);
        case Instruction::Kind::kGoTo: place = one.next; break;
        case Instruction::Kind::kIf:
          place = registers[one.target].cast<int64_t>() != 0 ? place + 1 : one.next;
          break;
      }
    }
  }

  [[nodiscard]] tvm::ffi::Any call(const Instruction& one, const Registers& registers,
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

  [[nodiscard]] tvm::ffi::AnyView value(const Operand& operand, const Registers& registers) {
    switch (operand.kind) {
      case Operand::Kind::kNumber: return operand.value;
      case Operand::Kind::kConstant: return executable_->constants[operand.value];
      case Operand::Kind::kFunction: return callees_[operand.value].function;
      default:
        if (operand.value == Operand::kMachine) return static_cast<void*>(this);
        if (operand.value == Operand::kNothing) return nullptr;
        return registers[operand.value];
    }
  }

  const std::shared_ptr<const Executable> executable_;
  std::vector<Place> places_;
  std::vector<Callee> callees_;
};

constexpr uint64_t kMagic = 0xD225DE2F4214151E;
constexpr const char* kVersion = "0.14";
constexpr int kValueBits = 56;
// More than any program has; what is beyond is damage.
constexpr int64_t kMostRegisters = int64_t{1} << 24;

[[noreturn]] void refuse(Phrases what) {
  TVM_FFI_THROW(ValueError) << "the program " << sentence(what) << ": compile the model again";
  TVM_FFI_UNREACHABLE();
}

FunctionInfo read_function(ByteReader* reader) {
  FunctionInfo info;
  const auto kind = reader->take<int32_t>();
  info.name = reader->take<std::string>();
  info.begin = reader->take<int64_t>();
  info.end = reader->take<int64_t>();
  info.arguments = reader->take<int64_t>();
  info.registers = reader->take<int64_t>();
  (void)reader->take<std::vector<std::string>>();  // names of its arguments
  if (kind != static_cast<int32_t>(FunctionInfo::Kind::kOther) &&
      kind != static_cast<int32_t>(FunctionInfo::Kind::kOwn)) {
    refuse({"has the function `", info.name, "` of kind ", kind, ", expected 0 or 1"});
  }
  info.kind = static_cast<FunctionInfo::Kind>(kind);
  return info;
}

ffi::Any read_constant(ByteReader* reader) {
  const auto kind = reader->take<int32_t>();
  switch (kind) {
    case ffi::TypeIndex::kTVMFFIShape: return ffi::Shape(reader->take<std::vector<int64_t>>());
    case ffi::TypeIndex::kTVMFFIDataType: return reader->take<DLDataType>();
    case ffi::TypeIndex::kTVMFFIStr: return reader->take<ffi::String>();
    default: refuse({"has a constant of type ", kind, ", which this runtime lacks"});
  }
}

// The words of one function's instructions, in order.
class Words {
 public:
  Words(const std::vector<int64_t>& words, int64_t offset) : words_(words) {
    if (offset < 0) refuse({"has an instruction at word ", offset});
    at_ = static_cast<size_t>(offset);
  }
  int64_t next() {
    if (at_ >= words_.size()) refuse({"ends in an instruction"});
    return words_[at_++];
  }

 private:
  const std::vector<int64_t>& words_;
  size_t at_;
};

// Where a jump from `place` leads; of damage anywhere, which the check below sees.
int64_t jump(int64_t place, int64_t by) {
  return static_cast<int64_t>(static_cast<uint64_t>(place) + static_cast<uint64_t>(by));
}

Instruction read_instruction(Words words, int64_t place) {
  const int64_t kind = words.next();
  switch (static_cast<Instruction::Kind>(kind)) {
    case Instruction::Kind::kCall: {
      Instruction call{Instruction::Kind::kCall, words.next(), words.next()};
      const int64_t operands = words.next();
      for (int64_t i = 0; i < operands; ++i) call.operands.emplace_back(words.next());
      return call;
    }
    case Instruction::Kind::kReturn: return {Instruction::Kind::kReturn, words.next()};
    case Instruction::Kind::kGoTo:
      return {Instruction::Kind::kGoTo, Operand::kNothing, 0, jump(place, words.next())};
    case Instruction::Kind::kIf: {
      const int64_t condition = words.next();
      return {Instruction::Kind::kIf, condition, 0, jump(place, words.next())};
    }
    default: refuse({"has an instruction ", kind, ", expected 1 to 4"});
  }
}

// Looks at everything that the machine does not look at as it runs.
class Check {
 public:
  explicit Check(const Executable& executable) : whole_(executable) {}

  void functions() {
    for (const FunctionInfo& info : whole_.functions) {
      if (info.kind != FunctionInfo::Kind::kOwn) continue;
      info_ = &info;
      within(info.begin, 0, info.end, "begins");
      within(info.end, 1, size(whole_.instructions) + 1, "ends");
      within(info.registers, 0, kMostRegisters, "keeps registers");
      within(info.arguments, 0, info.registers + 1, "takes arguments");
      for (int64_t i = info.begin; i < info.end; ++i) instruction(whole_.instructions[i], i);
      const Instruction& last = whole_.instructions[info.end - 1];
      if (last.kind != Instruction::Kind::kReturn && last.kind != Instruction::Kind::kGoTo) {
        refuse({"has the function `", info.name, "` without an end"});
      }
    }
  }

 private:
  template <typename Items>
  static int64_t size(const Items& items) {
    return static_cast<int64_t>(items.size());
  }
  void within(int64_t value, int64_t first, int64_t end, const char* what) const {
    if (value >= first && value < end) return;
    refuse({"has the function `", info_->name, "`, which ", what, ": ", value, ", expected ", first,
            " to ", end - 1});
  }
  void read(int64_t register_number) const {
    if (register_number == Operand::kNothing || register_number == Operand::kMachine) return;
    within(register_number, 0, info_->registers, "reads a register");
  }
  void operand(const Operand& given) const {
    switch (given.kind) {
      case Operand::Kind::kRegister: return read(given.value);
      case Operand::Kind::kNumber: return;
      case Operand::Kind::kConstant:
        return within(given.value, 0, size(whole_.constants), "passes a constant");
      case Operand::Kind::kFunction:
        within(given.value, 0, size(whole_.functions), "passes a function");
        return passed(whole_.functions[given.value]);
      default: within(static_cast<int64_t>(given.kind), 0, 4, "passes something of a kind");
    }
  }
  static void passed(const FunctionInfo& function) {
    const bool is_own = function.kind == FunctionInfo::Kind::kOwn;
    if (!is_own && find_builtin(function.name) == nullptr) return;
    refuse(
        {"passes the function `", function.name, "` as a value, which this runtime does not do"});
  }
  void instruction(const Instruction& one, int64_t place) const {
    switch (one.kind) {
      case Instruction::Kind::kCall:
        if (one.target < Operand::kNothing) within(one.target, 0, info_->registers, "writes to");
        within(one.function, 0, size(whole_.functions), "calls a function");
        for (const Operand& given : one.operands) operand(given);
        return;
      case Instruction::Kind::kReturn: return read(one.target);
      case Instruction::Kind::kIf:
        within(one.target, 0, info_->registers, "asks a register");
        return within(one.next, place + 1, info_->end, "goes to");
      case Instruction::Kind::kGoTo: return within(one.next, info_->begin, info_->end, "goes to");
    }
  }

  const Executable& whole_;
  const FunctionInfo* info_ = nullptr;
};

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

Operand::Operand(int64_t word)
    : kind(static_cast<Kind>(static_cast<uint64_t>(word) >> kValueBits)),
      // The upper bit of the number is its sign.
      value(static_cast<int64_t>(static_cast<uint64_t>(word) << (64 - kValueBits)) >>
            (64 - kValueBits)) {}

Executable read_executable(const ffi::Bytes& bytes) {
  ByteReader reader("the program", bytes.data(), bytes.size());
  if (reader.take<uint64_t>() != kMagic || reader.take<std::string>() != kVersion) {
    refuse({"is of another version of TVM"});
  }
  Executable read;
  const auto functions = reader.take<uint64_t>();
  for (uint64_t i = 0; i < functions; ++i) read.functions.push_back(read_function(&reader));
  if (reader.take<uint64_t>() != 0) refuse({"has constants of its own that lie in images"});
  const auto constants = reader.take<uint64_t>();
  for (uint64_t i = 0; i < constants; ++i) read.constants.push_back(read_constant(&reader));
  const auto offsets = reader.take<std::vector<int64_t>>();
  const auto words = reader.take<std::vector<int64_t>>();
  for (const int64_t offset : offsets) {
    const auto place = static_cast<int64_t>(read.instructions.size());
    read.instructions.push_back(read_instruction(Words(words, offset), place));
  }
  Check(read).functions();
  return read;
}

Builtin* find_builtin(std::string_view name) {
  for (const auto& [known, builtin] : kBuiltins) {
    if (known == name) return builtin;
  }
  return nullptr;
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  // Programs hand it on as a function.  TVM registers it with others that none calls.
  publish("runtime.TVMTensorCopyFromTo",
          [](DLTensor* from, DLTensor* to) { tvm::runtime::Tensor::CopyFromTo(from, to); });
  publish("ffi.Module.load_from_bytes.relax.VMExecutable", [](const ffi::Bytes& bytes) {
    return ffi::Module(ffi::make_object<ProgramModule>(read_executable(bytes)));
  });
}

}  // namespace adrenoc_runtime
