// What the text of a set of kernels says of each.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace adrenoc_runtime::opencl {

// An argument of a kernel that is the same at each launch.
struct KernelConstant {
  size_t bytes;
  std::array<char, 8> value;
};

// A kernel is a program's kernel with constants as its last arguments.  Its section may begin with
//     // Program: NAME             the kernel whose text it runs, else its own
//     // Constants: int 14, float 2.5e-1f
struct KernelText {
  std::string program;
  std::vector<KernelConstant> constants;
  std::vector<bool> images{};  // which arguments are images, as far as it is known
};

// Cuts what TVM's code generator prints into the section of each kernel, at its
// "// Function: NAME" lines.
[[nodiscard]] std::map<std::string, std::string> split_kernels(const std::string& source);

// Whether there is a section of that name that does not refer to another.
[[nodiscard]] bool has_own_text(const std::map<std::string, std::string>& sections,
                                const std::string& name);

// Throws ValueError for constants that are none.
[[nodiscard]] KernelText read_kernel_text(const std::string& name, const std::string& section);

// Of each argument of a kernel, whether it is an image; none where the text has no such kernel.
[[nodiscard]] std::vector<bool> read_image_arguments(const std::string& kernel,
                                                     const std::string& text);

}  // namespace adrenoc_runtime::opencl
