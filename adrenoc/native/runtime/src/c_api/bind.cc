// The memory that a model reads and writes: of the host, of OpenCL, of Android.
#include <tvm/ffi/extra/json.h>

#include "c_api/call.h"
#include "c_api/options.h"
#include "model/choose_device.h"
#include "opencl/device.h"
#include "opencl/hints.h"

using adrenoc_runtime::guarded;
using adrenoc_runtime::require;

namespace {

using Given = adrenoc_runtime::Model::Given;

adrenoc_status bind_input(adrenoc_model* model, size_t index, const Given& given) {
  return guarded([&] {
    require(model, "model");
    if (given.kind != Given::Kind::kHost) require(given.memory, "memory");
    model->model.bind_input(index, given);
  });
}

adrenoc_status bind_output(adrenoc_model* model, size_t index, const Given& given) {
  return guarded([&] {
    require(model, "model");
    if (given.kind != Given::Kind::kHost) require(given.memory, "memory");
    model->model.bind_output(index, given);
  });
}

// The device that a model would run on; nullptr for the CPU.
adrenoc_runtime::opencl::Device* open_device(const adrenoc_options* options) {
  const adrenoc_runtime::LoadOptions wanted =
      adrenoc_runtime::read_options(adrenoc_runtime::read_plain(options, "options"));
  // Before the device is used, whose context is made by them.
  adrenoc_runtime::opencl::set_hints(wanted.hints);
  const adrenoc_runtime::ChosenDevice chosen =
      adrenoc_runtime::choose_device(wanted.device, wanted.opencl_library);
  if (chosen.device.device_type != kDLOpenCL) return nullptr;
  return &adrenoc_runtime::opencl::device_at(chosen.device.device_id);
}

}  // namespace

adrenoc_status adrenoc_bind_input(adrenoc_model* model, size_t index, const void* data,
                                  size_t bytes) {
  // Nothing is written to an input of the host.
  return bind_input(model, index, {Given::Kind::kHost, const_cast<void*>(data), bytes});
}

adrenoc_status adrenoc_bind_output(adrenoc_model* model, size_t index, void* data, size_t bytes) {
  return bind_output(model, index, {Given::Kind::kHost, data, bytes});
}

adrenoc_status adrenoc_bind_input_opencl(adrenoc_model* model, size_t index, void* buffer) {
  return bind_input(model, index, {Given::Kind::kOpenClBuffer, buffer});
}

adrenoc_status adrenoc_bind_output_opencl(adrenoc_model* model, size_t index, void* buffer) {
  return bind_output(model, index, {Given::Kind::kOpenClBuffer, buffer});
}

adrenoc_status adrenoc_bind_input_hardware_buffer(adrenoc_model* model, size_t index,
                                                  struct AHardwareBuffer* buffer) {
  return bind_input(model, index, {Given::Kind::kHardwareBuffer, buffer});
}

adrenoc_status adrenoc_bind_output_hardware_buffer(adrenoc_model* model, size_t index,
                                                   struct AHardwareBuffer* buffer) {
  return bind_output(model, index, {Given::Kind::kHardwareBuffer, buffer});
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
    if (opened == nullptr) {
      throw adrenoc_runtime::Failure(ADRENOC_UNSUPPORTED, "the CPU is no OpenCL device");
    }
    tvm::ffi::json::Object told = opened->info().to_json();
    told.Set("gpu", tvm::ffi::String(adrenoc_runtime::adreno_number(opened->info())));
    text = std::string(tvm::ffi::json::Stringify(told));
    *facts = text.c_str();
  });
}

void* adrenoc_opencl_context(const adrenoc_model* model) {
  void* context = nullptr;
  (void)guarded([&] {
    if (model != nullptr) context = model->model.opencl_context();
  });
  return context;
}

void* adrenoc_opencl_device(const adrenoc_model* model) {
  void* device = nullptr;
  (void)guarded([&] {
    if (model != nullptr) device = model->model.opencl_device();
  });
  return device;
}
