// Opens libOpenCL at run time, and checks every call into it.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "opencl/cl_types.h"

namespace adrenoc_runtime::opencl {

// The functions of an opened OpenCL library.
struct Api {
#define ADRENOC_CL_FUNCTION(name, result, parameters) result(*name) parameters = nullptr;
#include "opencl/cl_functions.def"
#undef ADRENOC_CL_FUNCTION
};

// Names the library file that api() shall open.  Throws RuntimeError when another one is open.
void set_library(const std::string& path);

// The path of the library that is open, or "" while none is.
[[nodiscard]] std::string library_path();

// The functions; opens the library at the first call.  Throws RuntimeError, naming all files that
// were tried, when there is none.  Each use counts as a call.
[[nodiscard]] const Api& api();

// A function of the open library by its name, or null.
[[nodiscard]] void* library_symbol(const char* name);

// An entry point of an extension.  Throws RuntimeError, naming it, where a platform lacks it.
[[nodiscard]] void* load_entry(cl_platform_id platform, const char* name);

// Those that record commands, or take memory of others; each is made of its platform.
#define ADRENOC_CL_ENTRY(field, name, result, parameters) \
  result(*field) parameters = reinterpret_cast<result(*) parameters>(load_entry(platform, name));
struct CommandBufferApi {
  cl_platform_id platform;
#define ADRENOC_CL_COMMAND_BUFFER ADRENOC_CL_ENTRY
#include "opencl/cl_extensions.def"
};
struct RecordingApi {
  cl_platform_id platform;
#define ADRENOC_CL_RECORDING ADRENOC_CL_ENTRY
#include "opencl/cl_extensions.def"
};
struct ExternalMemoryApi {
  cl_platform_id platform;
#define ADRENOC_CL_EXTERNAL ADRENOC_CL_ENTRY
#include "opencl/cl_extensions.def"
};
#undef ADRENOC_CL_ENTRY

// How many OpenCL calls this thread has made, those of extensions included.
[[nodiscard]] uint64_t api_calls();
void count_api_call();

// The standard's name of an error code ("CL_OUT_OF_RESOURCES"), or "unknown OpenCL error -123".
[[nodiscard]] std::string error_name(cl_int code);

// Throws RuntimeError "clFoo failed with CL_BAR" unless `code` is CL_SUCCESS; MemoryError for the
// codes that tell of exhausted memory.
void check(cl_int code, const char* call);

// The text that `query` gives; its first call, without room, tells how long it is.  Throws as
// above.
[[nodiscard]] std::string query_text(
    const char* call, const std::function<cl_int(size_t room, char* text, size_t* size)>& query);

// Whether a code tells that memory ran out, so that freeing some and trying again can help.
[[nodiscard]] bool is_out_of_memory(cl_int code);

// Owns one OpenCL object and releases it with the function at `Release`.
template <typename T, cl_int (*Api::*Release)(T)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T value) : value_(value) {}
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    // A destructor cannot report: the object goes, whatever the driver answers.
    if (value_ != nullptr) (void)(api().*Release)(value_);
  }

  [[nodiscard]] T get() const { return value_; }
  [[nodiscard]] explicit operator bool() const { return value_ != nullptr; }

 private:
  T value_ = nullptr;
};

using ContextHandle = Handle<cl_context, &Api::clReleaseContext>;
using QueueHandle = Handle<cl_command_queue, &Api::clReleaseCommandQueue>;
using MemHandle = Handle<cl_mem, &Api::clReleaseMemObject>;
using ProgramHandle = Handle<cl_program, &Api::clReleaseProgram>;
using KernelHandle = Handle<cl_kernel, &Api::clReleaseKernel>;
using EventHandle = Handle<cl_event, &Api::clReleaseEvent>;

// Of no pool.  Throws as check() does.
[[nodiscard]] inline MemHandle new_buffer(cl_context context, size_t bytes) {
  cl_int code = CL_SUCCESS;
  MemHandle made(api().clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, nullptr, &code));
  check(code, "clCreateBuffer");
  return made;
}

}  // namespace adrenoc_runtime::opencl

// Calls an OpenCL function that returns its error code, and checks it.
#define ADRENOC_CL_CALL(function, ...)                                                     \
  ::adrenoc_runtime::opencl::check(::adrenoc_runtime::opencl::api().function(__VA_ARGS__), \
                                   #function)
