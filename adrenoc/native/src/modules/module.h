// The TVM module of kind "opencl": kernels in source form, built when they are first called.  And
// libraries of bundles, which hold such modules.
#pragma once

#include <tvm/ffi/extra/module.h>

#include <string>

namespace adrenoc_runtime::opencl {

// The module of the library at `path`: the one that is there already, as long as anybody has it.
[[nodiscard]] tvm::ffi::Module open_library(const std::string& path);

// Makes the code generator's choice between image reads with and without a sampler depend on the
// language that the kernel is compiled as.  As printed it asks for a *device* of version 2.0 or
// 3.0, so on one of 2.1 or 3.1 it drops the sampler, and then reading outside an image is
// undefined (some drivers crash) where kernels rely on 0.
[[nodiscard]] std::string with_samplers(std::string source);

// Functions that the module has beside its kernels.  The last two are also what TVM's own OpenCL
// module has, so tools that save and restore binaries work with both.
constexpr const char* kBuildAllFunction = "adrenoc.build_all";
constexpr const char* kProgramDigestFunction = "adrenoc.program_digest";
constexpr const char* kBuiltInsFunction = "adrenoc.built_ins";
constexpr const char* kSaveProgramsFunction = "adrenoc.save_programs";
constexpr const char* kLoadProgramsFunction = "adrenoc.load_programs";
constexpr const char* kSaveBinariesFunction = "opencl.GetPreCompiledPrograms";
constexpr const char* kLoadBinariesFunction = "opencl.SetPreCompiledPrograms";

}  // namespace adrenoc_runtime::opencl
