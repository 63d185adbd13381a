// One deed that is timed, and the deeds there are.
#ifndef ADRENOC_NATIVE_TRIALS_DEED_H_
#define ADRENOC_NATIVE_TRIALS_DEED_H_

#include <tvm/ffi/extra/json.h>

#include <chrono>
#include <memory>

#include "opencl/device.h"

namespace adrenoc_runtime {
namespace opencl {

class Deed {
 public:
  Deed() = default;
  Deed(const Deed&) = delete;
  Deed& operator=(const Deed&) = delete;
  virtual ~Deed() = default;

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

// As `measure_deeds` describes them.  Throw ffi::Error with the reason why it cannot be done here.
[[nodiscard]] std::unique_ptr<Deed> make_copy_deed(Device& device,
                                                   const tvm::ffi::json::Object& deed);
[[nodiscard]] std::unique_ptr<Deed> make_launch_deed(Device& device,
                                                     const tvm::ffi::json::Object& deed);
[[nodiscard]] std::unique_ptr<Deed> make_argument_deed(Device& device,
                                                       const tvm::ffi::json::Object& deed);
[[nodiscard]] std::unique_ptr<Deed> make_hint_deed(Device& device,
                                                   const tvm::ffi::json::Object& deed);
[[nodiscard]] std::unique_ptr<Deed> make_large_deed(Device& device,
                                                    const tvm::ffi::json::Object& deed);

// A number of a deed, from 1 to `most`.  Throws ValueError for another.
[[nodiscard]] size_t number_of(const tvm::ffi::json::Object& deed, const char* key, size_t most);

}  // namespace opencl
}  // namespace adrenoc_runtime

#endif  // ADRENOC_NATIVE_TRIALS_DEED_H_
