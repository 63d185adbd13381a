#include "loader_name.h"

#include <dlfcn.h>
#include <tvm/ffi/c_api.h>

#include <string>

#include "failure.h"

namespace adrenoc {
namespace {

constexpr const char* kName = "libtvm_ffi.so";

// Where this library lies; inside an APK too ("base.apk!/lib/arm64-v8a/...").
std::string own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&claim_loader_name), &info) == 0) return ".";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == path.npos ? "." : path.substr(0, slash);
}

std::string loader_error() {
  const char* text = dlerror();
  return text == nullptr ? "no reason is given" : text;
}

bool claim() {
  const std::string beside = own_folder() + "/" + kName;
  if (dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
    throw Failure(ADRENOC_INTERNAL, std::string(kName) +
                                        " belongs beside libadrenoc_runtime.so: " + loader_error());
  }
  void* known = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (known == nullptr || dlsym(known, "TVMFFIGetVersion") !=
                              reinterpret_cast<void*>(&TVMFFIGetVersion)) {
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

}  // namespace adrenoc
