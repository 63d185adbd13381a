// The memory that a model reads and writes: of the host, of OpenCL, of Android.
#include <tvm/ffi/extra/json.h>

#include "c_api/call.h"
#include "model/choose_device.h"
#include "opencl/device.h"
#include "opencl/hints.h"

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
    if (opened == nullptr) {
      throw Failure(ADRENOC_UNSUPPORTED, "the CPU is no OpenCL device");
    }
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
