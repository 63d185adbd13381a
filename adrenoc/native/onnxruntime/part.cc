#include "part.h"

#include <algorithm>
#include <utility>

namespace adrenoc_ep {
namespace {

thread_local double deadline_ms = 0;

using Names = std::vector<std::string>;

// Where `name` is among `names`.
size_t place_of(const std::string& name, const Names& names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw Refusal(ORT_INVALID_GRAPH, "the node has no tensor `" + name + "`");
  return static_cast<size_t>(found - names.begin());
}

bool has_all(const Names& names, const std::vector<Model::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const Model::Tensor& tensor) {
    return std::find(names.begin(), names.end(), tensor.name) != names.end();
  });
}

// What stands for the bundle's tensors, in their order.
Names in_order(const Names& context, const std::vector<Model::Tensor>& tensors, bool by_name,
               const char* kind) {
  Names ordered;
  if (by_name) {
    for (const Model::Tensor& tensor : tensors) ordered.push_back(tensor.name);
    return ordered;
  }
  if (context.size() != tensors.size()) {
    throw Refusal(ORT_INVALID_GRAPH, "the node has " + std::to_string(context.size()) + " " + kind +
                                         ", the bundle has " + std::to_string(tensors.size()));
  }
  return context;
}

struct Facts {
  int dtype = 0;
  Extents shape;
};

Facts facts_of(const OrtValue* value) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(api().GetTensorTypeAndShape(value, &info));
  const auto free = [](OrtTensorTypeAndShapeInfo* one) { api().ReleaseTensorTypeAndShapeInfo(one); };
  const std::unique_ptr<OrtTensorTypeAndShapeInfo, decltype(free)> held(info, free);
  Facts facts;
  size_t rank = 0;
  check(api().GetTensorElementType(info, &facts.dtype));
  check(api().GetDimensionsCount(info, &rank));
  facts.shape.resize(rank);
  check(api().GetDimensions(info, facts.shape.data(), rank));
  return facts;
}

// `shape` is that of an input, and has to outlive what is given; empty of an output.
adrenoc_tensor in_host(const OrtValue* value, void* memory, const Extents& shape) {
  static char nothing;  // for tensors of no bytes, whose memory may be null
  size_t bytes = 0;
  check(api().GetTensorSizeInBytes(value, &bytes));
  adrenoc_tensor given{};
  given.memory = memory == nullptr ? &nothing : memory;
  given.bytes = bytes;
  given.shape = {shape.data(), static_cast<uint32_t>(shape.size())};
  return given;
}

}  // namespace

void set_deadline_ms(double ms) { deadline_ms = ms; }

Part::Part(std::shared_ptr<Model> model, const Names& inputs, const Names& outputs,
           const Names& context_inputs, const Names& context_outputs)
    : model_(std::move(model)) {
  version = api().version;
  set(kCreateState, create_state);
  set(kCompute, compute);
  set(kReleaseState, release_state);
  const bool by_name = has_all(context_inputs, model_->inputs()) &&
                       has_all(context_outputs, model_->outputs());
  for (const std::string& name :
       in_order(context_inputs, model_->inputs(), by_name, "inputs")) {
    input_of_.push_back(place_of(name, inputs));
  }
  const Names made = in_order(context_outputs, model_->outputs(), by_name, "outputs");
  for (const std::string& name : outputs) output_of_.push_back(place_of(name, made));
}

// Runs have nothing of their own.
OrtStatus* Part::create_state(OrtNodeComputeInfo* self, void*, void** state) noexcept {
  *state = self;
  return nullptr;
}

void Part::release_state(OrtNodeComputeInfo*, void*) noexcept {}

OrtStatus* Part::compute(OrtNodeComputeInfo* self, void*, OrtKernelContext* context) noexcept {
  return guarded([&] { static_cast<const Part*>(self)->run(context); });
}

void Part::run(OrtKernelContext* context) const {
  std::vector<Facts> facts;
  Tensors inputs;
  facts.reserve(input_of_.size());
  for (size_t i = 0; i < input_of_.size(); ++i) {
    const Model::Tensor& tensor = model_->inputs()[i];
    const OrtValue* value = nullptr;
    check(api().KernelContext_GetInput(context, input_of_[i], &value));
    const void* data = nullptr;
    check(api().GetTensorData(value, &data));
    facts.push_back(facts_of(value));
    if (facts.back().dtype != tensor.dtype) {
      throw Refusal(ORT_INVALID_ARGUMENT, "input `" + tensor.name + "` has the ONNX dtype " +
                                              std::to_string(facts.back().dtype) +
                                              ", the bundle was compiled for " +
                                              std::to_string(tensor.dtype));
    }
    // Nothing is written to an input.
    inputs.push_back(in_host(value, const_cast<void*>(data), facts.back().shape));
  }
  Tensors outputs(model_->outputs().size());
  for (size_t i = 0; i < output_of_.size(); ++i) {
    const size_t place = output_of_[i];
    const Extents shape = model_->shape_of(inputs, place);
    OrtValue* value = nullptr;
    check(api().KernelContext_GetOutput(context, i, shape.data(), shape.size(), &value));
    if (value == nullptr) continue;  // nobody asks for it
    void* data = nullptr;
    check(api().GetTensorMutableData(value, &data));
    outputs[place] = in_host(value, data, {});
  }
  adrenoc_run_options options{};
  options.struct_bytes = sizeof(options);
  options.deadline_ms = deadline_ms;
  model_->run(inputs, outputs, options);
}

}  // namespace adrenoc_ep
