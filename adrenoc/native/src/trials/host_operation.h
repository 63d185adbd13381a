// One operation that is timed, and the operations there are.
#pragma once

#include <tvm/ffi/extra/json.h>

#include <chrono>
#include <memory>

#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

class HostOperation {
 public:
  HostOperation() = default;
  HostOperation(const HostOperation&) = delete;
  HostOperation& operator=(const HostOperation&) = delete;
  virtual ~HostOperation() = default;

  // Does it once and returns the microseconds until it is done.  Throws RuntimeError where the
  // device fails.
  [[nodiscard]] virtual double timed_us() = 0;

  // Whether what it brought is right, after any number of times.
  [[nodiscard]] virtual bool is_right() = 0;
};

class HostClock {
 public:
  [[nodiscard]] double us() const {
    return std::chrono::duration<double, std::micro>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start_ = Clock::now();
};

// As `measure_host_operations` describes them.  Throw ffi::Error with the reason why it cannot be
// done here.
[[nodiscard]] std::unique_ptr<HostOperation> make_launch_operation(
    Device& device, const tvm::ffi::json::Object& operation);
[[nodiscard]] std::unique_ptr<HostOperation> make_hint_operation(
    Device& device, const tvm::ffi::json::Object& operation);
[[nodiscard]] std::unique_ptr<HostOperation> make_large_operation(
    Device& device, const tvm::ffi::json::Object& operation);

// A number of an operation, from 1 to `most`.  Throws ValueError for another.
[[nodiscard]] size_t number_of(const tvm::ffi::json::Object& operation, const char* key,
                               size_t most);

}  // namespace adrenoc_runtime::opencl
