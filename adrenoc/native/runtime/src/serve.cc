#include "serve.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <mutex>
#include <string>

#include "cl_api.h"
#include "loader_name.h"

namespace adrenoc {
namespace {

namespace ffi = tvm::ffi;

// Where uploads go; one folder for the process, since TVM asks for it without saying who asks.
struct WorkFolder {
  std::mutex mutex;
  std::string path;
};

WorkFolder& work_folder() {
  static auto* folder = new WorkFolder();
  return *folder;
}

// A peer names files, not places.
ffi::String work_path(const ffi::String& name) {
  const std::string text = name;
  if (text.empty() || text == "." || text == ".." || text.find('/') != text.npos) {
    TVM_FFI_THROW(ValueError) << "A file name of a peer is one name without folders, got \""
                              << text << "\"";
  }
  WorkFolder& folder = work_folder();
  const std::lock_guard<std::mutex> lock(folder.mutex);
  return folder.path + "/" + text;
}

ffi::Module load_uploaded(const ffi::String& name) {
  return ffi::Module::LoadFromFile(work_path(name));
}

void define_functions() {
  // Not when the library is loaded: TVM's Python server defines its own under the same names.
  static std::once_flag once;
  std::call_once(once, [] {
    const auto define = [](const char* name, const ffi::Function& function) {
      ffi::Function::SetGlobal(name, function, /*override=*/true);
    };
    define("tvm.rpc.server.workpath", ffi::Function::FromTyped(work_path));
    define("tvm.rpc.server.load_module", ffi::Function::FromTyped(load_uploaded));
  });
}

}  // namespace

void serve_rpc(int descriptor, const std::string& folder, const std::string& opencl_library) {
  claim_loader_name();
  if (!opencl_library.empty()) opencl::set_library(opencl_library);
  define_functions();
  {
    const std::lock_guard<std::mutex> lock(work_folder().mutex);
    work_folder().path = folder;
  }
  ffi::Function::GetGlobalRequired("rpc.ServerLoop")(static_cast<int64_t>(descriptor));
}

}  // namespace adrenoc
