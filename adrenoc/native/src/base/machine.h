// What this was compiled for, and of which sources.
#pragma once

namespace adrenoc_runtime {

// As manifests name it.
#if defined(__aarch64__)
constexpr const char* kMachine = "aarch64";
#elif defined(__x86_64__)
constexpr const char* kMachine = "x86_64";
#elif defined(__arm__)
constexpr const char* kMachine = "arm";
#elif defined(__i386__)
constexpr const char* kMachine = "i386";
#else
#error "adrenoc does not know this machine"
#endif

// Versions of adrenoc and of TVM, and what the sources were.
[[nodiscard]] const char* stamp();

}  // namespace adrenoc_runtime
