// Launches as one command: cl_khr_command_buffer.
#include <tvm/ffi/error.h>

#include <array>
#include <utility>

#include "files/trace.h"
#include "launch/replay.h"

namespace adrenoc_runtime::opencl {
namespace {

constexpr const char* kExtension = "cl_khr_command_buffer";

// A property of command buffers; 0 where the device does not know it.
cl_bitfield buffer_property(cl_device_id device, cl_uint what) {
  cl_bitfield value = 0;
  const cl_int code = api().clGetDeviceInfo(device, what, sizeof(value), &value, nullptr);
  return code == CL_SUCCESS ? value : 0;
}

class CommandBuffer {
 public:
  CommandBuffer(const CommandBufferApi& functions, cl_command_queue queue, bool shared,
                const LaunchRange& launches)
      : functions_(functions) {
    const std::array<cl_ulong, 3> flags = {CL_COMMAND_BUFFER_FLAGS,
                                           CL_COMMAND_BUFFER_SIMULTANEOUS_USE, 0};
    cl_int code = CL_SUCCESS;
    count_api_call();
    value_ = functions_.create_buffer(1, &queue, shared ? flags.data() : nullptr, &code);
    check(code, "clCreateCommandBufferKHR");
    try {
      fill(launches);
    } catch (...) {
      release();
      throw;
    }
  }
  CommandBuffer(CommandBuffer&& other) noexcept
      : functions_(other.functions_),
        value_(std::exchange(other.value_, nullptr)),
        running_(std::move(other.running_)) {}
  CommandBuffer(const CommandBuffer&) = delete;
  CommandBuffer& operator=(const CommandBuffer&) = delete;
  ~CommandBuffer() { release(); }

  // With `exclusive` it waits until the buffer's last use has ended.
  void enqueue(cl_command_queue queue, bool exclusive) {
    if (running_) {
      const cl_event event = running_.get();
      ADRENOC_CL_CALL(clWaitForEvents, 1, &event);
      running_ = EventHandle();
    }
    cl_event event = nullptr;
    count_api_call();
    const cl_int code = functions_.enqueue_buffer(1, &queue, value_, 0, nullptr,
                                                  exclusive ? &event : nullptr);
    check(code, "clEnqueueCommandBufferKHR");
    running_ = EventHandle(event);
  }

 private:
  void fill(const LaunchRange& launches) {
    // Each command waits for the one before, as in the queue: drivers differ in whether the order
    // of an in-order queue holds inside of a buffer.
    cl_uint before = 0;
    bool is_first = true;
    for (const KeptLaunches::Launch& launch : launches) {
      cl_uint point = 0;
      count_api_call();
      const cl_int code = functions_.add_kernel(
          value_, nullptr, nullptr, launch.handle.get(), launch.work.dimensions, nullptr,
          launch.work.global.data(), launch.work.local.data(), is_first ? 0 : 1,
          is_first ? nullptr : &before, &point, nullptr);
      check(code, "clCommandNDRangeKernelKHR");
      before = point;
      is_first = false;
    }
    count_api_call();
    check(functions_.finalize_buffer(value_), "clFinalizeCommandBufferKHR");
  }

  void release() {
    if (value_ == nullptr) return;
    count_api_call();
    // The object goes, whatever the driver answers.
    (void)functions_.release_buffer(value_);
    value_ = nullptr;
  }

  const CommandBufferApi functions_;
  cl_command_buffer value_ = nullptr;
  EventHandle running_;
};

class CommandBufferReplay final : public Replay {
 public:
  CommandBufferReplay(Device& device, size_t launches, bool exclusive,
                      std::vector<CommandBuffer> buffers)
      : device_(device),
        launches_(launches),
        exclusive_(exclusive),
        buffers_(std::move(buffers)) {}

  [[nodiscard]] const char* name() const final { return "a command buffer"; }

  void enqueue(QueueLock& queue) final {
    trace("replaying", name());
    buffers_[next_].enqueue(queue.get(), exclusive_);
    next_ = (next_ + 1) % buffers_.size();
    device_.launched(queue.get(), launches_);
  }

 private:
  Device& device_;
  const size_t launches_;
  const bool exclusive_;
  std::vector<CommandBuffer> buffers_;
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Replay> record_command_buffer(Device& device, cl_command_queue queue,
                                              const LaunchRange& launches) {
  if (!device.info().has_extension(kExtension)) {
    TVM_FFI_THROW(RuntimeError) << "the device has no " << kExtension;
  }
  const cl_bitfield wanted =
      buffer_property(device.id(), CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES);
  if (wanted != 0) {
    TVM_FFI_THROW(RuntimeError) << "the device wants queues with the properties " << wanted
                                << " for command buffers";
  }
  const CommandBufferApi functions{device.platform()};
  const bool shared =
      (buffer_property(device.id(), CL_DEVICE_COMMAND_BUFFER_CAPABILITIES) &
       CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE) != 0;
  std::vector<CommandBuffer> buffers;
  // Where a buffer cannot be given again before it has run, one can be given while another runs.
  for (int i = 0; i < (shared ? 1 : 2); ++i) {
    buffers.emplace_back(functions, queue, shared, launches);
  }
  return std::make_unique<CommandBufferReplay>(device, launches.size(), !shared,
                                               std::move(buffers));
}

}  // namespace adrenoc_runtime::opencl
