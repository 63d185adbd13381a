// What the runtime and a model are: its names, inputs, outputs and shapes.
#include "base/dtype.h"
#include "base/machine.h"
#include "base/sha256.h"
#include "bundle/bundle.h"
#include "c_api/call.h"
#include "files/file.h"

namespace adrenoc_runtime {
namespace {

const TensorSpec& at(const std::vector<TensorSpec>& specs, size_t index) {
  if (index < specs.size()) return specs[index];
  refuse_argument({"index ", index, " is out of ", specs.size()});
}

const Manifest& bucket_at(const Model& model, size_t index) {
  const std::vector<const Bucket*> buckets = model.own_buckets();
  if (index < buckets.size()) return buckets[index]->manifest;
  refuse_argument({"bucket ", index, " is out of ", buckets.size()});
}

void fill_info(const TensorSpec& spec, adrenoc_tensor_info* info) {
  require(info, "info");
  *info = {spec.name.c_str(), spec.dtype.c_str(), spec.shape.data(),
           static_cast<uint32_t>(spec.shape.size()), spec.bytes};
}

}  // namespace

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

}  // namespace adrenoc_runtime

using namespace adrenoc_runtime;

const char* adrenoc_runtime_version(void) { return stamp(); }

const char* adrenoc_notes(adrenoc_model* model) {
  const char* notes = "";
  (void)guarded([&] {
    if (model != nullptr) notes = model->model.notes();
  });
  return notes;
}

const char* adrenoc_describe(const char* path) {
  static thread_local std::string text;
  const adrenoc_status status = guarded([&] {
    require(path, "path");
    text = Bundle::describe(path);
  });
  return status == ADRENOC_OK ? text.c_str() : nullptr;
}

adrenoc_status adrenoc_file_sha256(const char* path, char sha256[65]) {
  return guarded([&] {
    require(path, "path");
    require(sha256, "sha256");
    const MappedFile file(path);
    const std::string digest = sha256_hex(file.content());
    std::memcpy(sha256, digest.c_str(), digest.size() + 1);
  });
}

const char* adrenoc_model_name(const adrenoc_model* model) {
  return model == nullptr ? "" : model->model.manifest().name.c_str();
}

const char* adrenoc_device_name(const adrenoc_model* model) {
  return model == nullptr ? "" : model->model.device_name().c_str();
}

size_t adrenoc_input_count(const adrenoc_model* model) {
  return model == nullptr ? 0 : model->model.input_count();
}

size_t adrenoc_output_count(const adrenoc_model* model) {
  return model == nullptr ? 0 : model->model.output_count();
}

adrenoc_status adrenoc_input_info(const adrenoc_model* model, size_t index,
                                  adrenoc_tensor_info* info) {
  return with_model(model, [&](auto& own) { fill_info(own.input(index), info); });
}

adrenoc_status adrenoc_output_info(const adrenoc_model* model, size_t index,
                                   adrenoc_tensor_info* info) {
  return with_model(model, [&](auto& own) { fill_info(own.output(index), info); });
}

adrenoc_dtype adrenoc_dtype_of(const char* name) {
  const Dtype* const known = name == nullptr ? nullptr : find_dtype(name);
  return known == nullptr ? ADRENOC_DTYPE_UNKNOWN : known->number;
}

size_t adrenoc_bucket_count(const adrenoc_model* model) {
  return model == nullptr ? 0 : model->model.own_buckets().size();
}

size_t adrenoc_signature_count(const adrenoc_model* model) {
  if (model == nullptr || model->model.buckets().back().signature.empty()) return 0;
  return model->model.buckets().size();
}

const char* adrenoc_signature_name(const adrenoc_model* model, size_t index) {
  const size_t count = adrenoc_signature_count(model);
  return index < count ? model->model.buckets()[count - 1 - index].signature.c_str() : nullptr;
}

adrenoc_status adrenoc_set_signature(adrenoc_model* model, const char* name) {
  return with_model(model, [&](auto& own) {
    require(name, "name");
    own.set_signature(name);
  });
}

adrenoc_status adrenoc_bucket_input_info(const adrenoc_model* model, size_t bucket, size_t index,
                                         adrenoc_tensor_info* info) {
  return with_model(model,
                    [&](auto& own) { fill_info(at(bucket_at(own, bucket).inputs, index), info); });
}

adrenoc_status adrenoc_bucket_output_info(const adrenoc_model* model, size_t bucket, size_t index,
                                          adrenoc_tensor_info* info) {
  return with_model(model,
                    [&](auto& own) { fill_info(at(bucket_at(own, bucket).outputs, index), info); });
}

adrenoc_status adrenoc_set_input_shapes(adrenoc_model* model, const adrenoc_shape* shapes,
                                        size_t count) {
  return with_model(model, [&](auto& own) { own.set_shapes(read_shapes(shapes, count)); });
}
