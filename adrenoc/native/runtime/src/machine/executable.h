// The program of a model.so: what TVM's compiler writes for its virtual machine, read and checked.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <string>
#include <vector>

namespace adrenoc_runtime {

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

}  // namespace adrenoc_runtime
