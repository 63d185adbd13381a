// Whether waves of a device may fill its constant file: by built-ins that no extension list names,
// so only a trial tells.
#ifndef ADRENOC_NATIVE_MODULES_CONSTANT_FILE_H_
#define ADRENOC_NATIVE_MODULES_CONSTANT_FILE_H_

#include <string>

#include "opencl/device.h"

namespace adrenoc_runtime {
namespace opencl {

constexpr const char* kConstantFileUsed = "used";

struct ConstantFileUse {
  bool is_right = false;
  std::string reason;  // why kernels read their weights from buffers; "" where they need not
};

// What kernels are built with, above their text, where they may use the file.
constexpr const char* kUseConstantFile = "#define CONSTANT_FILE\n";

// Whether a kernel's text is written for the constant file.
[[nodiscard]] bool asks_for_constant_file(const std::string& source);

// The trial of a device by a kernel that copies as much at a time as `source` does, with the words
// of `source`.  Made once in a process; ADRENOC_CONSTANT_FILE=0 forgoes it.
[[nodiscard]] ConstantFileUse constant_file_use(Device& device, const std::string& source);

// Keeps what trials build in a folder, so that a later process compiles nothing for them.
void keep_trials_in(const std::string& folder);

}  // namespace opencl
}  // namespace adrenoc_runtime

#endif  // ADRENOC_NATIVE_MODULES_CONSTANT_FILE_H_
