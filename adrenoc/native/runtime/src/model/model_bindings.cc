// What runs read and write: the shapes that were chosen, and the memory that was bound.
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/dtype.h>

#include "base/failure.h"
#include "model/model.h"
#include "opencl/device.h"
#include "opencl/external_memory.h"

namespace adrenoc_runtime {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;

const TensorSpec& spec_at(const std::vector<TensorSpec>& specs, size_t index, const char* kind) {
  if (index < specs.size()) return specs[index];
  throw Failure(ADRENOC_BAD_ARGUMENT, "there is no " + std::string(kind) + " " +
                                          std::to_string(index) + "; the model has " +
                                          std::to_string(specs.size()));
}

void check_bytes(const TensorSpec& spec, size_t bytes) {
  if (bytes == spec.bytes) return;
  throw Failure(ADRENOC_BAD_ARGUMENT, "`" + spec.name + "` has " + std::to_string(spec.bytes) +
                                          " bytes, got " + std::to_string(bytes));
}

}  // namespace

const TensorSpec& Model::input(size_t index) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return spec_at(chosen_.inputs, index, "input");
}

const TensorSpec& Model::output(size_t index) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return spec_at(chosen_.outputs, index, "output");
}

size_t Model::output_count() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return chosen_.outputs.size();
}

void Model::set_shapes(const std::vector<std::optional<Shape>>& shapes) {
  if (shapes.size() != manifest().inputs.size()) {
    throw Failure(ADRENOC_BAD_ARGUMENT, std::to_string(shapes.size()) + " shapes for " +
                                            std::to_string(manifest().inputs.size()) + " inputs");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  choose(choose_bucket(buckets(), bundle_->batch(), shapes));
  show_last_run();
}

void Model::bind_input(size_t index, const void* data, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const TensorSpec& spec = spec_at(chosen_.inputs, index, "input");
  if (data != nullptr || !is_state(index)) check_bytes(spec, bytes);
  if (data == nullptr && !is_state(index)) {
    throw Failure(ADRENOC_BAD_ARGUMENT, "the memory for input `" + spec.name + "` is null");
  }
  bound_inputs_[index] = {data, std::nullopt};
}

void Model::bind_output(size_t index, void* data, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const TensorSpec& spec = spec_at(chosen_.outputs, index, "output");
  if (data != nullptr) check_bytes(spec, bytes);
  bound_outputs_[index] = {data, std::nullopt};
}

void Model::bind_input_memory(size_t index, void* memory, Memory kind) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const TensorSpec& spec = spec_at(chosen_.inputs, index, "input");
  bound_inputs_[index] = {nullptr, wrap(spec, chosen_manifest().inputs[index], memory, kind)};
}

void Model::bind_output_memory(size_t index, void* memory, Memory kind) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const TensorSpec& spec = spec_at(chosen_.outputs, index, "output");
  bound_outputs_[index] = {nullptr, wrap(spec, chosen_manifest().outputs[index], memory, kind)};
}

Tensor Model::wrap(const TensorSpec& spec, const TensorSpec& whole, void* memory,
                   Memory kind) const {
  if (device_.device_type != kDLOpenCL) {
    throw Failure(ADRENOC_UNSUPPORTED, "the model runs on the CPU, which has no OpenCL memory");
  }
  if (spec.bytes != whole.bytes) {
    throw Failure(ADRENOC_UNSUPPORTED,
                  "`" + spec.name + "` has a smaller batch than a bucket, which is filled up on "
                  "the host; bind memory of the host, or choose the shape of a bucket");
  }
  const ffi::Shape shape(spec.shape);
  const DLDataType dtype = ffi::StringToDLDataType(spec.dtype);
  if (kind == Memory::kHardwareBuffer) {
    return opencl::tensor_in_hardware_buffer(device_, memory, shape, dtype);
  }
  return opencl::tensor_in_buffer(device_, static_cast<opencl::cl_mem>(memory), shape, dtype);
}

void* Model::opencl_context() const {
  if (device_.device_type != kDLOpenCL) return nullptr;
  return opencl::device_at(device_.device_id).context();
}

void* Model::opencl_device() const {
  if (device_.device_type != kDLOpenCL) return nullptr;
  return opencl::device_at(device_.device_id).id();
}

Model::Tensors Model::bound_memory() const {
  Tensors bound;
  for (const BoundInput& input : bound_inputs_) {
    if (input.memory.has_value()) bound.push_back(*input.memory);
  }
  for (const BoundOutput& output : bound_outputs_) {
    if (output.memory.has_value()) bound.push_back(*output.memory);
  }
  return bound;
}

}  // namespace adrenoc_runtime
