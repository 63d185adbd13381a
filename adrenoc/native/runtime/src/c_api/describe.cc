// What a model is: its names, inputs, outputs and shapes.
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "c_api/call.h"

namespace adrenoc_runtime {
namespace {

const TensorSpec& at(const std::vector<TensorSpec>& specs, size_t index) {
  if (index < specs.size()) return specs[index];
  throw Failure(ADRENOC_BAD_ARGUMENT,
                "index " + std::to_string(index) + " is out of " + std::to_string(specs.size()));
}

const Manifest& bucket_at(const Model& model, size_t index) {
  if (index < model.buckets().size()) return model.buckets()[index].manifest;
  throw Failure(ADRENOC_BAD_ARGUMENT, "bucket " + std::to_string(index) + " is out of " +
                                          std::to_string(model.buckets().size()));
}

void fill_info(const TensorSpec& spec, adrenoc_tensor_info* info) {
  require(info, "info");
  *info = {spec.name.c_str(), spec.dtype.c_str(), spec.shape.data(),
           static_cast<uint32_t>(spec.shape.size()), spec.bytes};
}

std::vector<std::optional<Shape>> read_shapes(const adrenoc_shape* shapes, size_t count) {
  std::vector<std::optional<Shape>> read(count);
  if (count != 0) require(shapes, "shapes");
  for (size_t i = 0; i < count; ++i) {
    // A scalar has no extents, and needs to have none: all buckets take it.
    if (shapes[i].extents == nullptr) continue;
    read[i].emplace(shapes[i].extents, shapes[i].extents + shapes[i].rank);
  }
  return read;
}

}  // namespace
}  // namespace adrenoc_runtime

using adrenoc_runtime::guarded;
using adrenoc_runtime::Manifest;
using adrenoc_runtime::require;

const char* adrenoc_notes(adrenoc_model* model) {
  const char* notes = "";
  (void)guarded([&] {
    if (model != nullptr) notes = model->model.notes();
  });
  return notes;
}

const char* adrenoc_model_name(const adrenoc_model* model) {
  return model == nullptr ? "" : model->model.manifest().name.c_str();
}

const char* adrenoc_device_name(const adrenoc_model* model) {
  return model == nullptr ? "" : model->model.device_name().c_str();
}

size_t adrenoc_input_count(const adrenoc_model* model) {
  return model == nullptr ? 0 : model->model.manifest().inputs.size();
}

size_t adrenoc_output_count(const adrenoc_model* model) {
  return model == nullptr ? 0 : model->model.output_count();
}

adrenoc_status adrenoc_input_info(const adrenoc_model* model, size_t index,
                                  adrenoc_tensor_info* info) {
  return guarded([&] {
    require(model, "model");
    adrenoc_runtime::fill_info(model->model.input(index), info);
  });
}

adrenoc_status adrenoc_output_info(const adrenoc_model* model, size_t index,
                                   adrenoc_tensor_info* info) {
  return guarded([&] {
    require(model, "model");
    adrenoc_runtime::fill_info(model->model.output(index), info);
  });
}

size_t adrenoc_bucket_count(const adrenoc_model* model) {
  return model == nullptr ? 0 : model->model.buckets().size();
}

adrenoc_status adrenoc_bucket_input_info(const adrenoc_model* model, size_t bucket, size_t index,
                                         adrenoc_tensor_info* info) {
  return guarded([&] {
    require(model, "model");
    const Manifest& manifest = adrenoc_runtime::bucket_at(model->model, bucket);
    adrenoc_runtime::fill_info(adrenoc_runtime::at(manifest.inputs, index), info);
  });
}

adrenoc_status adrenoc_bucket_output_info(const adrenoc_model* model, size_t bucket, size_t index,
                                          adrenoc_tensor_info* info) {
  return guarded([&] {
    require(model, "model");
    const Manifest& manifest = adrenoc_runtime::bucket_at(model->model, bucket);
    adrenoc_runtime::fill_info(adrenoc_runtime::at(manifest.outputs, index), info);
  });
}

adrenoc_status adrenoc_set_input_shapes(adrenoc_model* model, const adrenoc_shape* shapes,
                                        size_t count) {
  return guarded([&] {
    require(model, "model");
    model->model.set_shapes(adrenoc_runtime::read_shapes(shapes, count));
  });
}
