// Ways to launch the kernels of a run again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launch/cancelling.h"
#include "launch/kernel.h"
#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

class Replay {
 public:
  virtual ~Replay() = default;

  // "a command buffer".
  [[nodiscard]] virtual const char* name() const = 0;

  // Gives all launches to the device's queue, which the caller has locked.  Steps between them run
  // without the lock; it is held again in the end, also where an error is thrown.  Throws
  // RuntimeError or MemoryError when the driver fails, and what a step throws; some launches may
  // have been given then.
  virtual void enqueue(QueueLock& queue) = 0;
};

// One OpenCL kernel object a launch, whose arguments were set once.
class KeptLaunches final : public Replay {
 public:
  struct Launch {
    KernelHandle handle;
    const std::string* name;
    WorkSize work;
  };

  // `steps` have to outlive this.
  KeptLaunches(Device& device, const std::vector<CapturedLaunch>& launches,
               const std::vector<CapturedStep>& steps);

  [[nodiscard]] const char* name() const final { return "kept arguments"; }
  // Notes when each kernel runs, where the device is being profiled.
  void enqueue(QueueLock& queue) final;
  // The same in pieces that take the device at most so long; all has ended when it returns. Between
  // them the queue is anybody's.
  void enqueue_paced(QueueLock& queue, double limit_ms);
  // Of the last enqueue_paced.
  [[nodiscard]] const Pieces& pieces() const { return pacing_.pieces(); }
  // The launch that no piece can be shorter than, where that is beyond the limit: a sentence, else
  // "".
  [[nodiscard]] std::string beyond(double limit_ms) const;

  [[nodiscard]] const std::vector<CapturedStep>& steps() const { return steps_; }
  [[nodiscard]] const std::vector<Launch>& launches() const { return launches_; }

  // Sets one argument of one launch anew.  Not while a recording of the launches is in use: drivers
  // differ in whether it sees the change.
  void set_argument(size_t launch, size_t index, const KernelArgument& argument);

 private:
  void launch(cl_command_queue queue, const Launch& launch);

  Device& device_;
  std::vector<Launch> launches_;
  const std::vector<CapturedStep>& steps_;
  Pacing pacing_;
};

// A run of launches without a step between them.
class LaunchRange {
 public:
  using Launch = KeptLaunches::Launch;
  LaunchRange(const Launch* first, const Launch* last) : first_(first), last_(last) {}

  [[nodiscard]] const Launch* begin() const { return first_; }
  [[nodiscard]] const Launch* end() const { return last_; }
  [[nodiscard]] size_t size() const { return static_cast<size_t>(last_ - first_); }

 private:
  const Launch* first_;
  const Launch* last_;
};

// The launches as one command, by cl_khr_command_buffer, or as few, by cl_qcom_recordable_queues.
// `queue` is the device's, locked.  They refer to `launches` no longer than the call.  Throw
// RuntimeError or MemoryError that say why it cannot be done.
using Record = std::unique_ptr<Replay>(Device& device, cl_command_queue queue,
                                       const LaunchRange& launches);
[[nodiscard]] Record record_command_buffer, record_recordable_queue;

// All of `kept`: a recording of each range of launches, with its steps between them.
[[nodiscard]] std::unique_ptr<Replay> record_ranges(Device& device, cl_command_queue queue,
                                                    const KeptLaunches& kept, Record* record);

// Some drivers replay a recording more slowly than they take plain launches, so each way gets two
// runs, which are waited for.  A recording wins unless it is clearly slower: what it saves of the
// host's time is not in these times.
class Trial {
 public:
  Trial() = default;  // of nothing: not under way
  // `kept` must live as long as the trial.
  Trial(Replay& kept, std::vector<std::unique_ptr<Replay>> recorded);

  [[nodiscard]] bool is_under_way() const;

  // Gives one run to the device and waits for it.  Returns the name of the way that it took, or
  // null when that way failed, which then is out of the trial.
  [[nodiscard]] const char* run(QueueLock& queue);

  // The recording that won, or null; `reason` then says why none did.
  [[nodiscard]] std::unique_ptr<Replay> take_best(std::string* reason);

 private:
  struct Way {
    Replay* replay;
    std::unique_ptr<Replay> owned;
    double best_ms;
    std::string failure;
  };

  std::vector<Way> ways_;  // the first is that of plain launches
  size_t runs_ = 0;
};

}  // namespace adrenoc_runtime::opencl
