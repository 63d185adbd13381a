#include "opencl/cl_api.h"

#include <dlfcn.h>
#include <tvm/ffi/error.h>

#include <mutex>
#include <vector>

namespace adrenoc_runtime::opencl {
namespace {

// Where Android keeps the libraries for programs of this kind.
#ifdef __LP64__
#define ADRENOC_LIB "lib64"
#else
#define ADRENOC_LIB "lib"
#endif

// Where an OpenCL library is looked for, in this order.  An Android app sees the vendor's library
// by name if its manifest asks for it; the paths serve programs started from a shell.
constexpr const char* kLibraryCandidates[] = {
    "libOpenCL.so.1",
    "libOpenCL.so",
#ifdef __ANDROID__
    "/vendor/" ADRENOC_LIB "/libOpenCL.so",
    "/system/vendor/" ADRENOC_LIB "/libOpenCL.so",
    "/system/" ADRENOC_LIB "/libOpenCL.so",
#endif
};

// What an app may lack where none of them can be opened.
#ifdef __ANDROID__
constexpr const char* kAdvice =
    ". An app sees the vendor's library only if its AndroidManifest.xml says in <application>: "
    "<uses-native-library android:name=\"libOpenCL.so\" android:required=\"false\"/>";
#else
constexpr const char* kAdvice = "";
#endif

struct Library {
  std::mutex mutex;
  std::string requested;  // set by the user before the first call
  std::string opened;
  void* handle = nullptr;
  Api api;
};

// Lives as long as the process: device memory may be released by late destructors.
Library& library() {
  static auto* instance = new Library();
  return *instance;
}

thread_local uint64_t thread_api_calls = 0;

template <typename Function>
bool resolve(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(handle, name));
  return *function != nullptr;
}

// The name of a function that the library lacks, or nullptr when all are there.
const char* resolve_all(void* handle, Api* api) {
#define ADRENOC_CL_FUNCTION(name, result, parameters) \
  if (!resolve(handle, #name, &api->name)) return #name;
#include "opencl/cl_functions.def"
#undef ADRENOC_CL_FUNCTION
  return nullptr;
}

void open_library(Library* library) {
  std::vector<std::string> candidates;
  if (library->requested.empty()) {
    candidates.assign(std::begin(kLibraryCandidates), std::end(kLibraryCandidates));
  } else {
    candidates.push_back(library->requested);
  }
  // In one line: what passes messages on may keep the first alone.
  std::string tried;
  const auto add = [&tried](const std::string& what) {
    tried += (tried.empty() ? " " : "; ") + what;
  };
  for (const std::string& candidate : candidates) {
    void* handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* reason = dlerror();
      add(reason != nullptr ? reason : candidate);
      continue;
    }
    if (const char* missing = resolve_all(handle, &library->api)) {
      add(candidate + ": has no " + missing);
      dlclose(handle);
      continue;
    }
    library->opened = candidate;
    library->handle = handle;
    return;
  }
  TVM_FFI_THROW(RuntimeError) << "No usable OpenCL library. Tried:" << tried << kAdvice;
}

}  // namespace

void set_library(const std::string& path) {
  Library& lib = library();
  std::lock_guard<std::mutex> lock(lib.mutex);
  if (!lib.opened.empty() && lib.opened != path) {
    TVM_FFI_THROW(RuntimeError) << "Cannot use OpenCL library " << path << ": " << lib.opened
                                << " is already in use by this process";
  }
  lib.requested = path;
}

std::string library_path() {
  Library& lib = library();
  std::lock_guard<std::mutex> lock(lib.mutex);
  return lib.opened;
}

void* library_symbol(const char* name) {
  Library& lib = library();
  std::lock_guard<std::mutex> lock(lib.mutex);
  return lib.handle == nullptr ? nullptr : dlsym(lib.handle, name);
}

// A loader asks the platform; a driver that is opened without one may just export the function.
void* load_entry(cl_platform_id platform, const char* name) {
  void* found = api().clGetExtensionFunctionAddressForPlatform(platform, name);
  if (found == nullptr) found = library_symbol(name);
  if (found == nullptr) TVM_FFI_THROW(RuntimeError) << "the driver has no " << name;
  return found;
}

uint64_t api_calls() { return thread_api_calls; }

void count_api_call() { ++thread_api_calls; }

const Api& api() {
  count_api_call();
  Library& lib = library();
  // Once open it never changes, so each thread needs the lock only for its first call.
  static thread_local bool is_open = false;
  if (!is_open) {
    std::lock_guard<std::mutex> lock(lib.mutex);
    if (lib.opened.empty()) open_library(&lib);
    is_open = true;
  }
  return lib.api;
}

std::string error_name(cl_int code) {
  switch (code) {
#define ADRENOC_CL_ERROR(name, value) \
  case value: return #name;
#include "opencl/cl_errors.def"
#undef ADRENOC_CL_ERROR
    default: return "unknown OpenCL error " + std::to_string(code);
  }
}

bool is_out_of_memory(cl_int code) {
  return code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES ||
         code == CL_OUT_OF_HOST_MEMORY;
}

void check(cl_int code, const char* call) {
  if (code == CL_SUCCESS) return;
  if (code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY) {
    TVM_FFI_THROW(MemoryError) << call << " failed with " << error_name(code);
  }
  TVM_FFI_THROW(RuntimeError) << call << " failed with " << error_name(code);
}

std::string query_text(const char* call,
                       const std::function<cl_int(size_t room, char* text, size_t* size)>& query) {
  size_t size = 0;
  check(query(0, nullptr, &size), call);
  std::string text(size, '\0');
  check(query(size, text.data(), nullptr), call);
  // OpenCL counts the final NUL, and some drivers pad with blanks.
  while (!text.empty() && (text.back() == '\0' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace adrenoc_runtime::opencl
