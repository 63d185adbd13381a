// Launches as few commands: cl_qcom_recordable_queues.
#include <tvm/ffi/error.h>

#include <algorithm>
#include <utility>

#include "files/trace.h"
#include "launch/replay.h"

namespace adrenoc_runtime::opencl {
namespace {

constexpr const char* kRecordableQueues = "cl_qcom_recordable_queues";

class RecordingHandle {
 public:
  RecordingHandle(const RecordingApi& functions, cl_recording value)
      : functions_(functions), value_(value) {}
  RecordingHandle(RecordingHandle&& other) noexcept
      : functions_(other.functions_), value_(std::exchange(other.value_, nullptr)) {}
  RecordingHandle(const RecordingHandle&) = delete;
  RecordingHandle& operator=(const RecordingHandle&) = delete;
  ~RecordingHandle() {
    if (value_ == nullptr) return;
    count_api_call();
    (void)functions_.release_recording(value_);
  }
  [[nodiscard]] cl_recording get() const { return value_; }

 private:
  const RecordingApi functions_;
  cl_recording value_;
};

// The queue that records goes after what it recorded.
class RecordableQueueReplay final : public Replay {
 public:
  RecordableQueueReplay(Device& device, size_t launches, const RecordingApi& functions,
                        QueueHandle recorder)
      : device_(device),
        launches_(launches),
        functions_(functions),
        recorder_(std::move(recorder)) {}

  [[nodiscard]] const char* name() const final { return "a recordable queue"; }

  void record(const KeptLaunches::Launch* begin, const KeptLaunches::Launch* end) {
    cl_int code = CL_SUCCESS;
    count_api_call();
    const cl_recording value = functions_.new_recording(recorder_.get(), &code);
    check(code, "clNewRecordingQCOM");
    recordings_.emplace_back(functions_, value);
    for (const KeptLaunches::Launch* launch = begin; launch != end; ++launch) {
      ADRENOC_CL_CALL(clEnqueueNDRangeKernel, recorder_.get(), launch->handle.get(),
                      launch->work.dimensions, nullptr, launch->work.global.data(),
                      launch->work.local.data(), 0, nullptr, nullptr);
    }
    count_api_call();
    check(functions_.end_recording(value), "clEndRecordingQCOM");
  }

  void enqueue(QueueLock& queue) final {
    trace("replaying", name());
    for (const RecordingHandle& recording : recordings_) {
      count_api_call();
      const cl_int code =
          functions_.enqueue_recording(queue.get(), recording.get(), 0, nullptr, 0, nullptr, 0, nullptr,
                                       0, nullptr, 0, nullptr, nullptr);
      check(code, "clEnqueueRecordingQCOM");
    }
    device_.launched(queue.get(), launches_);
  }

 private:
  Device& device_;
  const size_t launches_;
  const RecordingApi functions_;
  const QueueHandle recorder_;
  std::vector<RecordingHandle> recordings_;
};

}  // namespace

std::unique_ptr<Replay> record_recordable_queue(
    Device& device, cl_command_queue, const LaunchRange& launches) {
  if (!device.info().has_extension(kRecordableQueues)) {
    TVM_FFI_THROW(RuntimeError) << "the device has no " << kRecordableQueues;
  }
  const RecordingApi functions{device.platform()};
  cl_uint most = 0;
  ADRENOC_CL_CALL(clGetDeviceInfo, device.id(), CL_DEVICE_RECORDABLE_QUEUE_MAX_SIZE, sizeof(most),
                  &most, nullptr);
  if (most == 0) TVM_FFI_THROW(RuntimeError) << "the device records 0 launches at a time";
  cl_int code = CL_SUCCESS;
  QueueHandle recorder(
      api().clCreateCommandQueue(device.context(), device.id(), CL_QUEUE_RECORDABLE, &code));
  check(code, "clCreateCommandQueue");
  auto replay = std::make_unique<RecordableQueueReplay>(device, launches.size(), functions,
                                                        std::move(recorder));
  for (const KeptLaunches::Launch* begin = launches.begin(); begin != launches.end();) {
    const auto count = std::min<size_t>(most, static_cast<size_t>(launches.end() - begin));
    replay->record(begin, begin + count);
    begin += count;
  }
  return replay;
}

}  // namespace adrenoc_runtime::opencl
