// What runs read and write: the shapes that were chosen, and the memory that was bound.
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/dtype.h>

#include "model/model.h"
#include "opencl/external_memory.h"

namespace adrenoc_runtime {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;

const TensorSpec& spec_at(const std::vector<TensorSpec>& specs, size_t index, const char* kind) {
  if (index < specs.size()) return specs[index];
  refuse_argument({"there is no ", kind, " ", index, "; the model has ", specs.size()});
}

// `given` names, for `expected` others.
void check_count(size_t given, size_t expected, const char* names, const char* others) {
  if (given == expected) return;
  refuse_argument({given, " ", names, " for ", expected, " ", others});
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
  Chosen chosen = choose_for(shapes);
  const std::lock_guard<std::mutex> lock(mutex_);
  choose(std::move(chosen));
  show_last_run();
}

std::vector<TensorSpec> Model::outputs_for(const std::vector<std::optional<Shape>>& shapes) const {
  return choose_for(shapes).outputs;
}

Chosen Model::choose_for(const std::vector<std::optional<Shape>>& shapes) const {
  check_count(shapes.size(), input_count(), "shapes", "inputs");
  return choose_bucket(buckets(), bundle_->batch(), called().signature, shapes);
}

std::vector<const Bucket*> Model::own_buckets() const {
  std::vector<const Bucket*> own;
  for (const Bucket& bucket : buckets()) {
    if (bucket.signature == called().signature) own.push_back(&bucket);
  }
  return own;
}

void Model::set_signature(const std::string& name) {
  const size_t index = find_signature(buckets(), name);
  const std::lock_guard<std::mutex> lock(mutex_);
  signature_ = index;
  choose(whole_bucket(buckets(), index));
  show_last_run();
}

void Model::bind_input(size_t index, const Given& given) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Bound bound = bound_input(index, given);
  if (!bound.is_there() && !is_state(index)) {
    refuse_argument({"the memory for input `", chosen_.inputs[index].name, "` is null"});
  }
  bound_inputs_[index] = std::move(bound);
}

void Model::bind_output(size_t index, const Given& given) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bound_outputs_[index] = bound_output(index, given);
}

Model::Bound Model::bound_input(size_t index, const Given& given) const {
  const TensorSpec& spec = spec_at(chosen_.inputs, index, "input");
  return bound(spec, chosen_manifest().inputs[index], given);
}

Model::Bound Model::bound_output(size_t index, const Given& given) const {
  const TensorSpec& spec = spec_at(chosen_.outputs, index, "output");
  return bound(spec, chosen_manifest().outputs[index], given);
}

Model::Bound Model::bound(const TensorSpec& spec, const TensorSpec& whole,
                          const Given& given) const {
  if (given.memory == nullptr) return {};
  if (given.kind == Given::Kind::kHost) {
    if (given.bytes != spec.bytes) {
      refuse_argument({"`", spec.name, "` has ", spec.bytes, " bytes, got ", given.bytes});
    }
    return {given.memory, std::nullopt};
  }
  if (device_.device_type != kDLOpenCL) {
    throw Failure(ADRENOC_UNSUPPORTED, "the model runs on the CPU, which has no OpenCL memory");
  }
  if (spec.bytes != whole.bytes) {
    throw Failure(ADRENOC_UNSUPPORTED,
                  {"`", spec.name,
                   "` has a smaller batch than a bucket, which is filled up on "
                   "the host; bind memory of the host, or choose the shape of a bucket"});
  }
  const ffi::Shape shape(spec.shape);
  const DLDataType dtype = ffi::StringToDLDataType(spec.dtype);
  if (given.kind == Given::Kind::kHardwareBuffer) {
    return {nullptr, opencl::tensor_in_hardware_buffer(device_, given.memory, shape, dtype)};
  }
  return {nullptr, opencl::tensor_in_buffer(device_, static_cast<opencl::cl_mem>(given.memory),
                                            given.offset, shape, dtype)};
}

void Model::run_with(const std::vector<std::optional<Shape>>& shapes,
                     const std::vector<Given>& inputs, const std::vector<Given>& outputs,
                     const opencl::Ending& ending) {
  const auto work = [&] {
    const Aside own(this);
    choose(choose_for(shapes));
    check_count(outputs.size(), chosen_.outputs.size(), "tensors", "outputs");
    for (size_t i = 0; i < inputs.size(); ++i) bound_inputs_[i] = bound_input(i, inputs[i]);
    for (size_t i = 0; i < outputs.size(); ++i) bound_outputs_[i] = bound_output(i, outputs[i]);
    run_once();
  };
  at_turn(cancels(), work, ending);
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
  for (const Bound& input : bound_inputs_) {
    if (input.memory.has_value()) bound.push_back(*input.memory);
  }
  for (const Bound& output : bound_outputs_) {
    if (output.memory.has_value()) bound.push_back(*output.memory);
  }
  return bound;
}

}  // namespace adrenoc_runtime
