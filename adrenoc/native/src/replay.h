// Ways to launch the kernels of a run again.
#ifndef ADRENOC_NATIVE_REPLAY_H_
#define ADRENOC_NATIVE_REPLAY_H_

#include <memory>
#include <string>
#include <vector>

#include "capture.h"
#include "device.h"
#include "kernel.h"

namespace adrenoc {
namespace opencl {

class Replay {
 public:
  Replay() = default;
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  virtual ~Replay() = default;

  // "a command buffer".
  [[nodiscard]] virtual const char* name() const = 0;

  // Gives all launches to the device's queue, which the caller has locked.  Throws RuntimeError or
  // MemoryError when the driver fails; some launches may have been given then.
  virtual void enqueue(cl_command_queue queue) = 0;
};

// One OpenCL kernel object a launch, whose arguments were set once.
class KeptLaunches final : public Replay {
 public:
  struct Launch {
    KernelHandle handle;
    const std::string* name;
    WorkSize work;
  };

  KeptLaunches(Device& device, const std::vector<CapturedLaunch>& launches);

  [[nodiscard]] const char* name() const final { return "kept arguments"; }
  // Notes when each kernel runs, where the device is being profiled.
  void enqueue(cl_command_queue queue) final;

  [[nodiscard]] const std::vector<Launch>& launches() const { return launches_; }

  // Sets one argument of one launch anew.  Not while a recording of the launches is in use: drivers
  // differ in whether it sees the change.
  void set_argument(size_t launch, size_t index, const KernelArgument& argument);

 private:
  Device& device_;
  std::vector<Launch> launches_;
};

// The launches as one command, by cl_khr_command_buffer, or as few, by cl_qcom_recordable_queues.
// `queue` is the device's, locked.  They refer to `launches` no longer than the call.  Throw
// RuntimeError or MemoryError that say why it cannot be done.
[[nodiscard]] std::unique_ptr<Replay> record_command_buffer(
    Device& device, cl_command_queue queue, const std::vector<KeptLaunches::Launch>& launches);
[[nodiscard]] std::unique_ptr<Replay> record_recordable_queue(
    Device& device, cl_command_queue queue, const std::vector<KeptLaunches::Launch>& launches);

}  // namespace opencl
}  // namespace adrenoc

#endif  // ADRENOC_NATIVE_REPLAY_H_
