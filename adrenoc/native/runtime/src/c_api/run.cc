// The memory that a model reads and writes; its runs, here or in a thread of their own, and how
// long they took.
#include <tvm/ffi/extra/json.h>

#include <chrono>

#include "c_api/call.h"
#include "model/choose_device.h"
#include "opencl/device.h"

namespace adrenoc_runtime {
namespace {

using Given = Model::Given;

Given::Kind read_kind(uint32_t kind) {
  switch (kind) {
    case ADRENOC_HOST: return Given::Kind::kHost;
    case ADRENOC_OPENCL: return Given::Kind::kOpenClBuffer;
    case ADRENOC_HARDWARE_BUFFER: return Given::Kind::kHardwareBuffer;
    default:
      refuse_argument(
          {"the kind of a tensor's memory is ", kind, ", expected an adrenoc_memory_kind"});
  }
}

std::vector<Given> read_tensors(const adrenoc_tensor* tensors, size_t count) {
  if (count != 0) require(tensors, "tensors");
  std::vector<Given> given;
  for (size_t i = 0; i < count; ++i) {
    const adrenoc_tensor& tensor = tensors[i];
    const Given::Kind kind = read_kind(tensor.kind);
    if (tensor.offset != 0 && kind != Given::Kind::kOpenClBuffer) {
      refuse_argument(
          {"an offset of ", tensor.offset, " bytes, expected 0 but in an OpenCL buffer"});
    }
    given.push_back({kind, tensor.memory, tensor.bytes, tensor.offset});
  }
  return given;
}

}  // namespace

opencl::Ending read_ending(const adrenoc_run_options* options) {
  const adrenoc_run_options plain = read_plain(options, "run's options");
  if (!(plain.deadline_ms >= 0)) {
    refuse_argument({"deadline_ms is ", plain.deadline_ms, ", expected 0 or more"});
  }
  opencl::Ending ending;
  if (plain.cancellation != nullptr) ending.asked = &plain.cancellation->asked;
  if (plain.deadline_ms > 0) {
    const std::chrono::duration<double, std::milli> limit(
        std::min(plain.deadline_ms, double(kLongestWaitMs)));
    using Clock = opencl::Ending::Clock;
    ending.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  }
  return ending;
}

}  // namespace adrenoc_runtime

using namespace adrenoc_runtime;

namespace {

using Given = Model::Given;

using Bind = void (Model::*)(size_t index, const Given& given);
adrenoc_status bind(adrenoc_model* model, Bind bind_one, size_t index, const Given& given) {
  return with_model(model, [&](auto& own) {
    if (given.kind != Given::Kind::kHost) require(given.memory, "memory");
    (own.*bind_one)(index, given);
  });
}

// The device that a model would run on; nullptr for the CPU.
opencl::Device* open_device(const adrenoc_options* options) {
  const LoadOptions wanted = read_options(read_plain(options, "options"));
  // Before the device is used, whose context is made by them.
  opencl::set_hints(wanted.hints);
  const ChosenDevice chosen = choose_device(wanted.device, wanted.opencl_library);
  if (chosen.device.device_type != kDLOpenCL) return nullptr;
  return &opencl::device_at(chosen.device.device_id);
}

}  // namespace

adrenoc_status adrenoc_bind_input(adrenoc_model* model, size_t index, const void* data,
                                  size_t bytes) {
  // Nothing is written to an input of the host.
  return bind(model, &Model::bind_input, index,
              {Given::Kind::kHost, const_cast<void*>(data), bytes});
}

adrenoc_status adrenoc_bind_output(adrenoc_model* model, size_t index, void* data, size_t bytes) {
  return bind(model, &Model::bind_output, index, {Given::Kind::kHost, data, bytes});
}

adrenoc_status adrenoc_bind_input_opencl(adrenoc_model* model, size_t index, void* buffer) {
  return bind(model, &Model::bind_input, index, {Given::Kind::kOpenClBuffer, buffer});
}

adrenoc_status adrenoc_bind_output_opencl(adrenoc_model* model, size_t index, void* buffer) {
  return bind(model, &Model::bind_output, index, {Given::Kind::kOpenClBuffer, buffer});
}

adrenoc_status adrenoc_bind_input_hardware_buffer(adrenoc_model* model, size_t index,
                                                  struct AHardwareBuffer* buffer) {
  return bind(model, &Model::bind_input, index, {Given::Kind::kHardwareBuffer, buffer});
}

adrenoc_status adrenoc_bind_output_hardware_buffer(adrenoc_model* model, size_t index,
                                                   struct AHardwareBuffer* buffer) {
  return bind(model, &Model::bind_output, index, {Given::Kind::kHardwareBuffer, buffer});
}

adrenoc_status adrenoc_open_device(const adrenoc_options* options, void** context, void** device) {
  return guarded([&] {
    if (context != nullptr) *context = nullptr;
    if (device != nullptr) *device = nullptr;
    auto* const opened = open_device(options);
    if (opened == nullptr) return;
    if (context != nullptr) *context = opened->context();
    if (device != nullptr) *device = opened->id();
  });
}

adrenoc_status adrenoc_describe_device(const adrenoc_options* options, const char** facts) {
  static thread_local std::string text;
  return guarded([&] {
    require(facts, "facts");
    *facts = nullptr;
    auto* const opened = open_device(options);
    if (opened == nullptr) throw Failure(ADRENOC_UNSUPPORTED, "the CPU is no OpenCL device");
    tvm::ffi::json::Object told = opened->info().to_json();
    told.Set("gpu", tvm::ffi::String(adreno_number(opened->info())));
    text = std::string(tvm::ffi::json::Stringify(told));
    *facts = text.c_str();
  });
}

void* adrenoc_opencl_context(const adrenoc_model* model) {
  void* context = nullptr;
  (void)with_model(model, [&](auto& own) { context = own.opencl_context(); });
  return context;
}

void* adrenoc_opencl_device(const adrenoc_model* model) {
  void* device = nullptr;
  (void)with_model(model, [&](auto& own) { device = own.opencl_device(); });
  return device;
}

adrenoc_status adrenoc_run(adrenoc_model* model) {
  return with_model(model, [&](auto& own) { own.run(); });
}

adrenoc_status adrenoc_run_repeatedly(adrenoc_model* model, uint32_t runs, double* ms,
                                      double* host_ms) {
  return with_model(model, [&](auto& own) {
    const Model::Pace pace = own.run_repeatedly(runs);
    if (ms != nullptr) *ms = pace.ms;
    if (host_ms != nullptr) *host_ms = pace.host_ms;
  });
}

adrenoc_status adrenoc_verify(adrenoc_model* model, adrenoc_verdict* verdict) {
  return with_model(model, [&](auto& own) {
    (void)read_plain(verdict, "verdict");
    const Model::Verdict found = own.verify();
    const adrenoc_verdict told{0, found.was_kept ? 1U : 0U, found.runs, found.ms};
    if (verdict != nullptr) tell_plain(told, verdict);
    if (!found.wrong.empty()) throw Failure(ADRENOC_WRONG_RESULTS, found.wrong);
  });
}

const char* adrenoc_profile(adrenoc_model* model) {
  const char* text = nullptr;
  with_model(model, [&](auto& own) { text = own.profile(); });
  return text;
}

adrenoc_status adrenoc_run_async(adrenoc_model* model) {
  return with_model(model, [&](auto&) {
    const std::lock_guard<std::mutex> lock(model->pending_mutex);
    if (model->pending.valid()) {
      throw Failure(ADRENOC_NOT_READY, "a run goes on that nobody has waited for");
    }
    // Who cancels from here on means this run, whenever its thread begins.
    model->pending = std::async(std::launch::async, [model, since = model->model.cancels()] {
      const Fence::Signal at_end(model->fence);
      model->model.run(since);
    });
  });
}

adrenoc_status adrenoc_cancel(adrenoc_model* model) {
  return with_model(model, [&](auto& own) { own.cancel(); });
}

adrenoc_status adrenoc_fence(adrenoc_model* model, int* descriptor) {
  return with_model(model, [&](auto&) {
    require(descriptor, "descriptor");
    *descriptor = model->fence.descriptor();
  });
}

adrenoc_status adrenoc_wait(adrenoc_model* model, int64_t timeout_ms) {
  return with_model(model, [&](auto&) {
    const std::lock_guard<std::mutex> lock(model->pending_mutex);
    std::future<void>& pending = model->pending;
    if (!pending.valid()) refuse_argument("no run was started");
    const std::chrono::milliseconds limit(std::min(timeout_ms, kLongestWaitMs));
    const bool ended = timeout_ms < 0 || pending.wait_for(limit) == std::future_status::ready;
    // The thread signals just before its last deed.
    if (!ended && !model->fence.is_signalled()) throw Failure(ADRENOC_NOT_READY, "the run goes on");
    pending.wait();
    model->fence.reset();
    pending.get();
  });
}

adrenoc_status adrenoc_get_times(const adrenoc_model* model, adrenoc_times* times) {
  return with_model(model, [&](auto& own) {
    require(times, "times");
    *times = own.times();
  });
}

adrenoc_status adrenoc_get_launching(adrenoc_model* model, adrenoc_launching* launching) {
  return with_model(model, [&](auto& own) {
    require(launching, "launching");
    (void)read_plain(launching, "launching");
    tell_plain(own.launching(), launching);
  });
}

adrenoc_status adrenoc_run_with(adrenoc_model* model, const adrenoc_tensor* inputs,
                                size_t input_count, const adrenoc_tensor* outputs,
                                size_t output_count, const adrenoc_run_options* options) {
  return with_model(model, [&](auto& own) {
    const opencl::Ending ending = read_ending(options);
    const auto read = read_tensors(inputs, input_count);
    const auto written = read_tensors(outputs, output_count);
    std::vector<adrenoc_shape> shapes;
    for (size_t i = 0; i < input_count; ++i) shapes.push_back(inputs[i].shape);
    own.run_with(read_shapes(shapes.data(), input_count), read, written, ending);
  });
}

adrenoc_status adrenoc_output_shape_for(const adrenoc_model* model, const adrenoc_shape* inputs,
                                        size_t input_count, size_t index, int64_t* extents,
                                        uint32_t* rank) {
  return with_model(model, [&](auto& own) {
    require(rank, "rank");
    const auto outputs = own.outputs_for(read_shapes(inputs, input_count));
    if (index >= outputs.size()) {
      refuse_argument({"there is no output ", index, "; the model has ", outputs.size()});
    }
    const Shape& shape = outputs[index].shape;
    const uint32_t room = *rank;
    *rank = static_cast<uint32_t>(shape.size());
    if (extents == nullptr) return;
    if (room < shape.size()) {
      refuse_argument({"room for ", room, " extents, expected ", shape.size()});
    }
    std::copy(shape.begin(), shape.end(), extents);
  });
}
