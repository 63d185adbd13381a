#include "modules/library.h"

#include <sys/stat.h>
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/object.h>

#include <map>
#include <mutex>
#include <utility>

#include "base/typed_function.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;

// What systems tell mapped files apart by.
using FileIdentity = std::pair<dev_t, ino_t>;
using Loaded = std::map<FileIdentity, ffi::WeakObjectPtr<ffi::ModuleObj>>;

}  // namespace

ffi::Module open_library(const std::string& path) {
  static std::mutex mutex;
  // Never destroyed: modules may outlive what is static.
  static auto* const loaded = new Loaded();
  const std::lock_guard<std::mutex> lock(mutex);
  struct stat status {};
  // Of what is not there the loader says so.
  const bool is_there = stat(path.c_str(), &status) == 0;
  const FileIdentity identity{status.st_dev, status.st_ino};
  const auto known = loaded->find(identity);
  if (is_there && known != loaded->end()) {
    if (auto module = known->second.lock(); module != nullptr) return ffi::Module(module);
    loaded->erase(known);
  }
  // Named, because Module::LoadFromFile goes by the path's ending.
  const auto open = ffi::Function::GetGlobalRequired("ffi.Module.load_from_file.so");
  auto module = open(ffi::String(path), ffi::String("so")).cast<ffi::Module>();
  if (is_there) {
    loaded->emplace(identity, ffi::details::ObjectUnsafe::ObjectPtrFromObjectRef<ffi::ModuleObj>(
                                  module));
  }
  return module;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  // The pointer of adrenoc/native/android/link.py, filled in like those that TVM's code brings.
  TVM_FFI_CHECK_SAFE_CALL(TVMFFIEnvModRegisterContextSymbol(
      "__TVMFFIErrorSetRaisedFromCStrParts",
      reinterpret_cast<void*>(TVMFFIErrorSetRaisedFromCStrParts)));
  publish("adrenoc.load_library",
          [](const ffi::String& path) { return open_library(std::string(path)); });
}

}  // namespace adrenoc_runtime::opencl
