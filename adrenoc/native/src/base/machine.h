// The machine that this was compiled for.
#ifndef ADRENOC_NATIVE_BASE_MACHINE_H_
#define ADRENOC_NATIVE_BASE_MACHINE_H_

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

}  // namespace adrenoc_runtime

#endif  // ADRENOC_NATIVE_BASE_MACHINE_H_
