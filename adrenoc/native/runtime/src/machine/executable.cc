#include "machine/executable.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>

#include "files/byte_stream.h"
#include "machine/machine.h"

namespace adrenoc_runtime {
namespace {

namespace ffi = tvm::ffi;
using opencl::ByteReader;

constexpr uint64_t kMagic = 0xD225DE2F4214151E;
constexpr const char* kVersion = "0.14";
constexpr int kValueBits = 56;
// More than any program has; what is beyond is damage.
constexpr int64_t kMostRegisters = int64_t{1} << 24;

[[noreturn]] void refuse(const std::string& what) {
  TVM_FFI_THROW(ValueError) << "the program " << what << ": compile the model again";
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
    refuse("has the function `" + info.name + "` of kind " + std::to_string(kind) +
           ", expected 0 or 1");
  }
  info.kind = static_cast<FunctionInfo::Kind>(kind);
  return info;
}

ffi::Any read_constant(ByteReader* reader) {
  const auto kind = reader->take<int32_t>();
  switch (kind) {
    case ffi::TypeIndex::kTVMFFIShape:
      return ffi::Shape(reader->take<std::vector<int64_t>>());
    case ffi::TypeIndex::kTVMFFIDataType:
      return reader->take<DLDataType>();
    case ffi::TypeIndex::kTVMFFIStr:
      return reader->take<ffi::String>();
    default:
      refuse("has a constant of type " + std::to_string(kind) + ", which this runtime lacks");
  }
}

// The words of one function's instructions, in order.
class Words {
 public:
  Words(const std::vector<int64_t>& words, int64_t offset) : words_(words) {
    if (offset < 0) refuse("has an instruction at word " + std::to_string(offset));
    at_ = static_cast<size_t>(offset);
  }
  int64_t next() {
    if (at_ >= words_.size()) refuse("ends in an instruction");
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
    case Instruction::Kind::kReturn:
      return {Instruction::Kind::kReturn, words.next()};
    case Instruction::Kind::kGoTo:
      return {Instruction::Kind::kGoTo, Operand::kNothing, 0, jump(place, words.next())};
    case Instruction::Kind::kIf: {
      const int64_t condition = words.next();
      return {Instruction::Kind::kIf, condition, 0, jump(place, words.next())};
    }
    default:
      refuse("has an instruction " + std::to_string(kind) + ", expected 1 to 4");
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
        refuse("has the function `" + info.name + "` without an end");
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
    refuse("has the function `" + info_->name + "`, which " + what + ": " + std::to_string(value) +
           ", expected " + std::to_string(first) + " to " + std::to_string(end - 1));
  }
  void read(int64_t register_number) const {
    if (register_number == Operand::kNothing || register_number == Operand::kMachine) return;
    within(register_number, 0, info_->registers, "reads a register");
  }
  void operand(const Operand& given) const {
    switch (given.kind) {
      case Operand::Kind::kRegister:
        return read(given.value);
      case Operand::Kind::kNumber:
        return;
      case Operand::Kind::kConstant:
        return within(given.value, 0, size(whole_.constants), "passes a constant");
      case Operand::Kind::kFunction:
        within(given.value, 0, size(whole_.functions), "passes a function");
        return passed(whole_.functions[given.value]);
      default:
        within(static_cast<int64_t>(given.kind), 0, 4, "passes something of a kind");
    }
  }
  static void passed(const FunctionInfo& function) {
    const bool is_own = function.kind == FunctionInfo::Kind::kOwn;
    if (!is_own && find_builtin(function.name) == nullptr) return;
    refuse("passes the function `" + function.name +
           "` as a value, which this runtime does not do");
  }
  void instruction(const Instruction& one, int64_t place) const {
    switch (one.kind) {
      case Instruction::Kind::kCall:
        if (one.target < Operand::kNothing) within(one.target, 0, info_->registers, "writes to");
        within(one.function, 0, size(whole_.functions), "calls a function");
        for (const Operand& given : one.operands) operand(given);
        return;
      case Instruction::Kind::kReturn:
        return read(one.target);
      case Instruction::Kind::kIf:
        within(one.target, 0, info_->registers, "asks a register");
        return within(one.next, place + 1, info_->end, "goes to");
      case Instruction::Kind::kGoTo:
        return within(one.next, info_->begin, info_->end, "goes to");
    }
  }

  const Executable& whole_;
  const FunctionInfo* info_ = nullptr;
};

}  // namespace

Operand::Operand(int64_t word)
    : kind(static_cast<Kind>(static_cast<uint64_t>(word) >> kValueBits)),
      // The upper bit of the number is its sign.
      value(static_cast<int64_t>(static_cast<uint64_t>(word) << (64 - kValueBits)) >>
            (64 - kValueBits)) {}

Executable read_executable(const ffi::Bytes& bytes) {
  ByteReader reader("the program", bytes.data(), bytes.size());
  if (reader.take<uint64_t>() != kMagic || reader.take<std::string>() != kVersion) {
    refuse("is of another version of TVM");
  }
  Executable read;
  const auto functions = reader.take<uint64_t>();
  for (uint64_t i = 0; i < functions; ++i) read.functions.push_back(read_function(&reader));
  if (reader.take<uint64_t>() != 0) refuse("has constants of its own that lie in images");
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

}  // namespace adrenoc_runtime
