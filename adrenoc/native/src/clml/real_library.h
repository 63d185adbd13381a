// What a phone's library declares, and handles that are given back to it.
// This is the one file that includes the header of the SDK that `adrenoc runtime build --clml-sdk`
// names; only `real_backend.cc` and what it is made of include this one.
#pragma once

// clang-format off: our declarations of OpenCL first, since the header's macros would spoil them
#include "clml/backends.h"
#include "opencl/cl_api.h"

#include <CL/cl.h>
#include <CL/opencl.h>
#include <CL/cl_qcom_ml_ops.h>
// clang-format on

#include <dlfcn.h>

#include <functional>
#include <utility>

namespace adrenoc_runtime::clml {

constexpr int kHeaderMajor = CL_QCOM_ML_OPS_H_MAJOR_VERSION;

inline void expect_success(::cl_int code, const char* call) {
  if (code != 0) throw CallError(call, opencl::error_name(code));
}

// Calls a function of an interface, and checks it.
#define ADRENOC_CLML_CALL(interface, function, ...) \
  expect_success((interface)->function(__VA_ARGS__), #function)

inline ::cl_mem native_memory(opencl::cl_mem memory) { return reinterpret_cast<::cl_mem>(memory); }
inline ::cl_command_queue native_queue(opencl::cl_command_queue queue) {
  return reinterpret_cast<::cl_command_queue>(queue);
}
inline ::cl_event* native_event(opencl::cl_event* event) {
  return reinterpret_cast<::cl_event*>(event);
}

// A function of libOpenCL that is no part of an interface; null where the driver lacks it.
template <typename Function>
Function* find_function(const char* name) {
  void* library = dlopen(opencl::library_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

template <typename Function>
Function* need_function(const char* name) {
  Function* found = find_function<Function>(name);
  if (found == nullptr) throw CallError(name, "no such function in libOpenCL");
  return found;
}

// A handle and what gives it back.
template <typename T>
class Held final : public Object {
 public:
  Held(T value, std::function<void(T)> release) : value(value), release_(std::move(release)) {}
  ~Held() override { release_(value); }
  const T value;

 private:
  std::function<void(T)> release_;
};

using TensorHandle = Held<cl_ml_tensor_qcom>;
using OperatorHandle = Held<cl_ml_op_qcom>;
using BindingsHandle = Held<cl_ml_tensor_mem_desc_set_qcom>;
using TuningHandle = Held<cl_ml_tuningcache_qcom>;

template <typename T>
T value_of(const Object& object) {
  return dynamic_cast<const Held<T>&>(object).value;
}

using RecordingValue = decltype(clNewRecordingQCOM(nullptr, nullptr));

struct Recording final : Object {
  ::cl_command_queue queue = nullptr;
  RecordingValue value = nullptr;
  ~Recording() override {
    using Release = ::cl_int(RecordingValue);
    if (auto* release = find_function<Release>("clReleaseRecordingQCOM"); release && value) {
      release(value);
    }
    if (queue != nullptr) {
      (void)opencl::api().clReleaseCommandQueue(reinterpret_cast<opencl::cl_command_queue>(queue));
    }
  }
};

}  // namespace adrenoc_runtime::clml
