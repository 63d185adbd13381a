// The memory that a model reads and writes: of the host, of OpenCL, of Android.
#include <cstddef>

#include "c_api/call.h"

using adrenoc_runtime::guarded;
using adrenoc_runtime::require;

adrenoc_status adrenoc_bind_input(adrenoc_model* model, size_t index, const void* data,
                                  size_t bytes) {
  return guarded([&] {
    require(model, "model");
    model->model.bind_input(index, data, bytes);
  });
}

adrenoc_status adrenoc_bind_output(adrenoc_model* model, size_t index, void* data, size_t bytes) {
  return guarded([&] {
    require(model, "model");
    model->model.bind_output(index, data, bytes);
  });
}

namespace {

using Memory = adrenoc_runtime::Model::Memory;

adrenoc_status bind_input_memory(adrenoc_model* model, size_t index, void* memory, Memory kind) {
  return guarded([&] {
    require(model, "model");
    require(memory, "memory");
    model->model.bind_input_memory(index, memory, kind);
  });
}

adrenoc_status bind_output_memory(adrenoc_model* model, size_t index, void* memory, Memory kind) {
  return guarded([&] {
    require(model, "model");
    require(memory, "memory");
    model->model.bind_output_memory(index, memory, kind);
  });
}

}  // namespace

adrenoc_status adrenoc_bind_input_opencl(adrenoc_model* model, size_t index, void* buffer) {
  return bind_input_memory(model, index, buffer, Memory::kOpenClBuffer);
}

adrenoc_status adrenoc_bind_output_opencl(adrenoc_model* model, size_t index, void* buffer) {
  return bind_output_memory(model, index, buffer, Memory::kOpenClBuffer);
}

adrenoc_status adrenoc_bind_input_hardware_buffer(adrenoc_model* model, size_t index,
                                                  struct AHardwareBuffer* buffer) {
  return bind_input_memory(model, index, buffer, Memory::kHardwareBuffer);
}

adrenoc_status adrenoc_bind_output_hardware_buffer(adrenoc_model* model, size_t index,
                                                   struct AHardwareBuffer* buffer) {
  return bind_output_memory(model, index, buffer, Memory::kHardwareBuffer);
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
