// A run on memory of its own, and the shapes that it gives.
#include <chrono>

#include "c_api/call.h"

namespace adrenoc_runtime {
namespace {

using Given = Model::Given;

// A later deadline would overflow the clock.
constexpr double kLongestMs = 1000.0 * 60 * 60 * 24 * 365;

Given::Kind read_kind(uint32_t kind) {
  switch (kind) {
    case ADRENOC_HOST:
      return Given::Kind::kHost;
    case ADRENOC_OPENCL:
      return Given::Kind::kOpenClBuffer;
    case ADRENOC_HARDWARE_BUFFER:
      return Given::Kind::kHardwareBuffer;
    default:
      throw Failure(ADRENOC_BAD_ARGUMENT, "the kind of a tensor's memory is " +
                                              std::to_string(kind) +
                                              ", expected an adrenoc_memory_kind");
  }
}

std::vector<Given> read_tensors(const adrenoc_tensor* tensors, size_t count) {
  if (count != 0) require(tensors, "tensors");
  std::vector<Given> given;
  for (size_t i = 0; i < count; ++i) {
    const adrenoc_tensor& tensor = tensors[i];
    const Given::Kind kind = read_kind(tensor.kind);
    if (tensor.offset != 0 && kind != Given::Kind::kOpenClBuffer) {
      throw Failure(ADRENOC_BAD_ARGUMENT, "an offset of " + std::to_string(tensor.offset) +
                                              " bytes, expected 0 but in an OpenCL buffer");
    }
    given.push_back({kind, tensor.memory, tensor.bytes, tensor.offset});
  }
  return given;
}

}  // namespace

opencl::Ending read_ending(const adrenoc_run_options* options) {
  const adrenoc_run_options plain = read_plain(options, "run's options");
  if (!(plain.deadline_ms >= 0)) {
    throw Failure(ADRENOC_BAD_ARGUMENT, "deadline_ms is " + std::to_string(plain.deadline_ms) +
                                            ", expected 0 or more");
  }
  opencl::Ending ending;
  if (plain.cancellation != nullptr) ending.asked = &plain.cancellation->asked;
  if (plain.deadline_ms > 0) {
    const std::chrono::duration<double, std::milli> limit(std::min(plain.deadline_ms, kLongestMs));
    using Clock = opencl::Ending::Clock;
    ending.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  }
  return ending;
}

}  // namespace adrenoc_runtime

using adrenoc_runtime::Failure;
using adrenoc_runtime::guarded;
using adrenoc_runtime::require;

adrenoc_status adrenoc_run_with(adrenoc_model* model, const adrenoc_tensor* inputs,
                                size_t input_count, const adrenoc_tensor* outputs,
                                size_t output_count, const adrenoc_run_options* options) {
  return guarded([&] {
    require(model, "model");
    const adrenoc_runtime::opencl::Ending ending = adrenoc_runtime::read_ending(options);
    const auto read = adrenoc_runtime::read_tensors(inputs, input_count);
    const auto written = adrenoc_runtime::read_tensors(outputs, output_count);
    std::vector<adrenoc_shape> shapes;
    for (size_t i = 0; i < input_count; ++i) shapes.push_back(inputs[i].shape);
    model->model.run_with(adrenoc_runtime::read_shapes(shapes.data(), input_count), read, written,
                          ending);
  });
}

adrenoc_status adrenoc_output_shape_for(const adrenoc_model* model, const adrenoc_shape* inputs,
                                        size_t input_count, size_t index, int64_t* extents,
                                        uint32_t* rank) {
  return guarded([&] {
    require(model, "model");
    require(rank, "rank");
    const auto outputs =
        model->model.outputs_for(adrenoc_runtime::read_shapes(inputs, input_count));
    if (index >= outputs.size()) {
      throw Failure(ADRENOC_BAD_ARGUMENT, "there is no output " + std::to_string(index) +
                                              "; the model has " +
                                              std::to_string(outputs.size()));
    }
    const adrenoc_runtime::Shape& shape = outputs[index].shape;
    const uint32_t room = *rank;
    *rank = static_cast<uint32_t>(shape.size());
    if (extents == nullptr) return;
    if (room < shape.size()) {
      throw Failure(ADRENOC_BAD_ARGUMENT, "room for " + std::to_string(room) +
                                              " extents, expected " +
                                              std::to_string(shape.size()));
    }
    std::copy(shape.begin(), shape.end(), extents);
  });
}
