// A function of a virtual machine bound to its arguments, whose launches are kept and replayed.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/tensor.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "launch/kernel.h"
#include "launch/replay.h"

namespace adrenoc_runtime::opencl {

// What a run may do instead of asking the virtual machine.
enum class Recording {
  kBest,    // record where the device can, unless the second to the fifth run (or seventh, where
            // there are two ways to record) show that plain launches are faster
  kAlways,  // record where the device can
  kKept,    // keep the arguments, record nothing
  kOff,     // nothing: every run goes through the virtual machine
};

// "best", "always", "kept" or "off".  Throws ValueError for another name.
[[nodiscard]] Recording recording_of(const std::string& name);

// How the last run reached the device.
struct LaunchReport {
  std::string mode = "none";  // "the virtual machine", or the name of a Replay
  std::string reason;         // why not in a better way; "" where it is the best
  uint64_t launches = 0;      // kernels that it launched
  uint64_t api_calls = 0;     // OpenCL calls of that run
  double host_ms = 0;         // median over the runs in that mode
  Pieces pieces;              // where submissions have a ceiling

  [[nodiscard]] tvm::ffi::json::Object to_json() const;
};

// How runs reached the device, told from any thread while the next one goes on.
class LaunchHistory {
 public:
  // A run that has ended; `is_steady` if it did nothing but what the next will do.
  void note(const LaunchReport& run, bool is_steady);
  [[nodiscard]] LaunchReport report() const;

 private:
  LaunchReport report_;
  std::vector<double> host_ms_;
  mutable std::mutex mutex_;
};

// An argument that somebody gave, by reference or as a tensor's struct that ends with the call.  Of
// one that is given by DLTensor*, as over RPC, whoever made the memory has to keep it.
class HeldArgument {
 public:
  explicit HeldArgument(const tvm::ffi::AnyView& given) {
    if (given.type_index() == tvm::ffi::TypeIndex::kTVMFFIDLTensorPtr) {
      const auto* tensor = given.cast<DLTensor*>();
      shape_ = std::make_unique<std::vector<int64_t>>(tensor->shape, tensor->shape + tensor->ndim);
      own_ = std::make_unique<DLTensor>(*tensor);
      own_->shape = shape_->data();
      own_->strides = nullptr;
    } else {
      held_ = given;
    }
  }

  // Of a tensor.
  [[nodiscard]] const DLTensor& get() const {
    return own_ != nullptr ? *own_ : *held_.as<tvm::runtime::Tensor>()->operator->();
  }
  // Good as long as this.
  [[nodiscard]] tvm::ffi::AnyView view() const {
    return own_ != nullptr ? tvm::ffi::AnyView(own_.get()) : tvm::ffi::AnyView(held_);
  }

 private:
  tvm::ffi::Any held_;
  std::unique_ptr<std::vector<int64_t>> shape_;
  std::unique_ptr<DLTensor> own_;
};

// The arguments stay the same tensors from run to run, though not with the same content, until one
// is bound to another.  A tensor that is given by DLTensor* (as over RPC) must live as long as
// this.  The first run goes through the virtual machine and is noted; later ones launch the same
// kernels on the same memory, the outputs included, and do between them what the CPU and OpenCL ML
// did: each run of launches between such steps is a recording of its own.  While a caller holds
// those of the run before, the virtual machine makes others.
class BoundRun {
 public:
  BoundRun(tvm::ffi::Function main, const std::vector<tvm::ffi::AnyView>& arguments, int device_id,
           Recording wish);
  ~BoundRun();

  // Gives the commands of one run to the device, and its results: a tensor or an array of tensors.
  [[nodiscard]] tvm::ffi::Any run();

  // Takes another tensor of the same shape, dtype and kind of memory for an argument that was given
  // as a tensor, else throws ValueError.  What was kept is changed; what was recorded goes, and is
  // recorded again once the arguments stay the same for some runs.
  void rebind(size_t index, const tvm::runtime::Tensor& tensor);

  [[nodiscard]] LaunchReport report() const { return history_->report(); }
  // It may outlive the runs.
  [[nodiscard]] std::shared_ptr<const LaunchHistory> history() const { return history_; }

  // Gives the memory between the launches back; the next run notes them anew.
  void forget();

 private:
  using Array = tvm::ffi::Array<tvm::runtime::Tensor>;

  void bind(const std::vector<tvm::ffi::AnyView>& arguments);
  [[nodiscard]] tvm::ffi::Any compute();
  [[nodiscard]] tvm::ffi::Any run_machine();
  [[nodiscard]] tvm::ffi::Any capture();
  void forget_locked();
  void exchange(uint64_t old_number, const std::shared_ptr<Storage>& storage);
  [[nodiscard]] bool is_shared(uint64_t number, size_t index) const;
  [[nodiscard]] bool outputs_are_held() const;
  [[nodiscard]] bool conditions_hold() const;
  [[nodiscard]] bool replay();
  [[nodiscard]] bool replay_recorded(QueueLock& queue);
  [[nodiscard]] bool replay_paced(QueueLock& queue, double limit_ms);
  [[nodiscard]] bool replay_for_trial(QueueLock& queue);
  void prepare(const QueueLock& queue);
  void record(const QueueLock& queue);
  void drop_recordings();

  const tvm::ffi::Function main_;
  Device& device_;
  const Recording wish_;
  std::vector<HeldArgument> held_;
  std::vector<tvm::ffi::AnyView> arguments_;

  // What the run that was noted launched, and what it gave: views that nobody has but the callers.
  std::vector<CapturedLaunch> captured_;
  std::vector<CapturedStep> steps_;  // between the launches; what is recorded refers to them
  std::vector<std::function<bool()>> conditions_;
  tvm::ffi::Any result_;
  std::string obstacle_;
  CallSites sites_;  // for runs that cannot be replayed

  std::unique_ptr<KeptLaunches> kept_;
  std::unique_ptr<Replay> recorded_;
  Trial trial_;
  std::string winner_;        // of the trial; "" before and where no recording won
  bool is_tried_ = false;     // the trial has ended
  bool is_recorded_ = false;  // recording was done, or found impossible, for these arguments
  size_t same_runs_ = 0;      // replays since an argument was exchanged
  uint64_t queue_number_ = 0;
  std::string recording_reason_;

  std::string mode_;
  std::string reason_;
  bool is_steady_ = false;  // the run did nothing but what the next will do
  Pieces pieces_;
  const std::shared_ptr<LaunchHistory> history_ = std::make_shared<LaunchHistory>();
  std::mutex mutex_;
};

}  // namespace adrenoc_runtime::opencl
