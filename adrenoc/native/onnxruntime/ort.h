// What the provider uses of onnxruntime's C interface, in words of our own, so that it is built
// without onnxruntime and runs with every one from 1.23 on.
//
// Tables of functions only grow at their ends: a function is its place in its table
// (ort_functions.def), and a table that we hand over is as long as that of the version that it
// names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

struct OrtEpDevice;
struct OrtEpGraphSupportInfo;
struct OrtGraph;
struct OrtHardwareDevice;
struct OrtKernelContext;
struct OrtKeyValuePairs;
struct OrtLogger;
struct OrtNode;
struct OrtOpAttr;
struct OrtRunOptions;
struct OrtSessionOptions;
struct OrtStatus;
struct OrtTensorTypeAndShapeInfo;
struct OrtValue;
struct OrtValueInfo;

enum OrtErrorCode {
  ORT_INVALID_ARGUMENT = 2,
  ORT_NO_SUCHFILE = 3,
  ORT_NO_MODEL = 4,
  ORT_RUNTIME_EXCEPTION = 6,
  ORT_NOT_IMPLEMENTED = 9,
  ORT_INVALID_GRAPH = 10,
};
enum OrtLoggingLevel { ORT_LOGGING_LEVEL_INFO = 1, ORT_LOGGING_LEVEL_WARNING = 2 };
enum OrtOpAttrType { ORT_OP_ATTR_INT = 1, ORT_OP_ATTR_STRING = 5 };
enum OrtHardwareDeviceType { OrtHardwareDeviceType_CPU = 0 };

struct OrtNodeFusionOptions {
  uint32_t version;
  bool drops_constant_initializers;  // of the fused nodes: the bundle has its own
};

struct OrtApiBase {
  const void* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

namespace adrenoc_ep {

// 1.23 has GetCapability and Compile first; what is younger than 1.24 is not used.
constexpr uint32_t kOldestVersion = 23;
constexpr uint32_t kNewestVersion = 24;

// A struct of functions that onnxruntime calls, all null at first.  `places` counts the version.
template <size_t places>
struct Table {
  uint32_t version = 0;
  void* functions[places - 1] = {};

  template <typename Result, typename... Parameters>
  void set(size_t place, Result (*function)(Parameters...) noexcept) {
    functions[place - 1] = reinterpret_cast<void*>(function);
  }
};

}  // namespace adrenoc_ep

// As long as those of 1.24.
struct OrtEp : adrenoc_ep::Table<16> {
  enum : size_t {
    kGetName = 1,
    kGetCapability = 2,
    kCompile = 3,
    kReleaseNodeComputeInfos = 4,
    kSetDynamicOptions = 7,
    kOnRunStart = 8,
    kIsConcurrentRunSupported = 14,  // since 1.24
  };
};
struct OrtEpFactory : adrenoc_ep::Table<24> {
  enum : size_t {
    kGetName = 1,
    kGetVendor = 2,
    kGetSupportedDevices = 3,
    kCreateEp = 4,
    kReleaseEp = 5,
    kGetVendorId = 6,
    kGetVersion = 7,
    kCreateDataTransfer = 11,
    kIsStreamAware = 12,
  };
};
struct OrtNodeComputeInfo : adrenoc_ep::Table<4> {
  enum : size_t { kCreateState = 1, kCompute = 2, kReleaseState = 3 };
};

namespace adrenoc_ep {

struct Api {
#define ADRENOC_ORT_API(place, name, result, parameters) result(*name) parameters;
#define ADRENOC_ORT_EP_API(place, name, result, parameters) result(*name) parameters;
#include "ort_functions.def"
#undef ADRENOC_ORT_API
#undef ADRENOC_ORT_EP_API
  uint32_t version;
};

// Takes the functions of a process's onnxruntime.  Gives a status where it is too old, else null.
[[nodiscard]] OrtStatus* open_api(const OrtApiBase& base);
// After that.
[[nodiscard]] const Api& api();

// What becomes a status of onnxruntime, and an exception in its users' languages.
class Refusal : public std::runtime_error {
 public:
  Refusal(OrtErrorCode code, const std::string& message)
      : std::runtime_error(message), code_(code) {}
  [[nodiscard]] OrtErrorCode code() const noexcept { return code_; }

 private:
  OrtErrorCode code_;
};

// Throws Refusal for a status that is not null.
void check(OrtStatus* status);

// It says that adrenoc is meant.
[[nodiscard]] OrtStatus* status_of(OrtErrorCode code, const char* message) noexcept;

// Runs `work`, and gives what it threw as a status.  Never with ORT_EP_FAIL: Python's wrapper would
// make a session on the CPU of it and compute again.
template <typename Work>
[[nodiscard]] OrtStatus* guarded(Work work) noexcept {
  try {
    work();
    return nullptr;
  } catch (const Refusal& refusal) {
    return status_of(refusal.code(), refusal.what());
  } catch (const std::exception& error) {
    return status_of(ORT_RUNTIME_EXCEPTION, error.what());
  }
}

void log(const OrtLogger* logger, OrtLoggingLevel level, const std::string& text);

}  // namespace adrenoc_ep
