#include "model.h"

#include <utility>

#include "bundle.h"
#include "decoder.h"

namespace adrenoc_ep {
namespace {

OrtErrorCode code_of(adrenoc_status status) {
  switch (status) {
    case ADRENOC_BAD_ARGUMENT:
      return ORT_INVALID_ARGUMENT;
    case ADRENOC_NOT_FOUND:
      return ORT_NO_SUCHFILE;
    case ADRENOC_BAD_BUNDLE:
      return ORT_NO_MODEL;
    case ADRENOC_UNSUPPORTED:
      return ORT_NOT_IMPLEMENTED;
    default:
      return ORT_RUNTIME_EXCEPTION;
  }
}

using Info = adrenoc_status (*)(const adrenoc_model*, size_t, adrenoc_tensor_info*);

std::vector<Model::Tensor> tensors_of(const adrenoc_model* model, size_t count, Info info) {
  std::vector<Model::Tensor> tensors;
  for (size_t i = 0; i < count; ++i) {
    adrenoc_tensor_info told{};
    check(info(model, i, &told));
    tensors.push_back({told.name, adrenoc_dtype_of(told.dtype)});
  }
  return tensors;
}

}  // namespace

void check(adrenoc_status status) {
  if (status != ADRENOC_OK) throw Refusal(code_of(status), adrenoc_last_error());
}

Model::Model(Handle handle)
    : inputs_(tensors_of(handle.get(), adrenoc_input_count(handle.get()), adrenoc_input_info)),
      outputs_(tensors_of(handle.get(), adrenoc_output_count(handle.get()), adrenoc_output_info)),
      handle_(std::move(handle)) {}

Extents Model::shape_of(const Tensors& inputs, size_t place) const {
  std::vector<adrenoc_shape> shapes;
  for (const adrenoc_tensor& input : inputs) shapes.push_back(input.shape);
  uint32_t rank = 0;
  const auto ask = [&](int64_t* extents) {
    check(adrenoc_output_shape_for(handle(), shapes.data(), shapes.size(), place, extents, &rank));
  };
  ask(nullptr);
  Extents shape(rank);
  if (rank != 0) ask(shape.data());
  return shape;
}

void Model::run(const Tensors& inputs, const Tensors& outputs,
                const adrenoc_run_options& options) {
  check(adrenoc_run_with(handle(), inputs.data(), inputs.size(), outputs.data(), outputs.size(),
                         &options));
}

void Model::cancel() { check(adrenoc_cancel(handle())); }

std::unique_ptr<Model> open_model(const std::string& path, const Options& options,
                                  const OrtLogger* logger) {
  adrenoc_options plain{};
  plain.struct_bytes = sizeof(plain);
  for (const std::string& option : options) check(adrenoc_set_option(&plain, option.c_str()));
  adrenoc_model* loaded = nullptr;
  check(adrenoc_load(path.c_str(), &plain, &loaded));
  Model::Handle handle(loaded);
  log(logger, ORT_LOGGING_LEVEL_INFO,
      std::string(adrenoc_model_name(loaded)) + " runs on " + adrenoc_device_name(loaded));
  const std::string notes = adrenoc_notes(loaded);
  if (!notes.empty()) log(logger, ORT_LOGGING_LEVEL_WARNING, notes);
  if (Decoder::is_one(loaded)) return std::make_unique<Decoder>(std::move(handle), states_of(path));
  return std::make_unique<Model>(std::move(handle));
}

}  // namespace adrenoc_ep
