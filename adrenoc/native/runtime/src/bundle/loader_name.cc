#include "bundle/loader_name.h"

#include <dlfcn.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

#include <string>

#include "base/failure.h"

namespace adrenoc_runtime {
namespace {

constexpr const char* kName = "libtvm_ffi.so";

// The file of the program that runs.
std::string program_path() {
  std::string path(4096, '\0');
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  path.resize(length < 0 ? 0 : static_cast<size_t>(length));
  return path;
}

// Where this library lies; inside an APK too ("base.apk!/lib/arm64-v8a/...").  As a part of a
// program it has the name that the program was called by, perhaps without a folder.
std::string own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&claim_loader_name), &info) == 0) return ".";
  std::string path = info.dli_fname;
  if (path.find('/') == path.npos) path = program_path();
  const size_t slash = path.rfind('/');
  return slash == path.npos ? "." : path.substr(0, slash);
}

std::string loader_error() {
  const char* text = dlerror();
  return text == nullptr ? "no reason is given" : text;
}

// Whether what is loaded by the name leads to this runtime.
bool leads_here(void* known) {
  constexpr const char* name = "TVMFFIGetVersion";
  void* found = known == nullptr ? nullptr : dlsym(known, name);
  // Linked into a program, the runtime is seen by all libraries, and the name is an empty one.
  if (known != nullptr && found == nullptr) found = dlsym(RTLD_DEFAULT, name);
  return found == reinterpret_cast<void*>(&TVMFFIGetVersion);
}

bool claim() {
  const std::string beside = own_folder() + "/" + kName;
  if (dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
    throw Failure(ADRENOC_INTERNAL, std::string(kName) +
                                        " belongs beside the runtime: " + loader_error());
  }
  if (!leads_here(dlopen(kName, RTLD_NOW | RTLD_LOCAL))) {
    throw Failure(ADRENOC_INTERNAL, std::string("another ") + kName +
                                        " is loaded in this process: bundles would use that TVM "
                                        "and not this runtime");
  }
  return true;
}

}  // namespace

void claim_loader_name() {
  static const bool claimed = claim();  // tried again after a failure
  (void)claimed;
}

}  // namespace adrenoc_runtime
