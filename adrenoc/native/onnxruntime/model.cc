#include "model.h"

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

Model::Model(const std::string& path, const Options& options, const OrtLogger* logger) {
  adrenoc_options plain{};
  plain.struct_bytes = sizeof(plain);
  for (const std::string& option : options) check(adrenoc_set_option(&plain, option.c_str()));
  adrenoc_model* model = nullptr;
  check(adrenoc_load(path.c_str(), &plain, &model));
  handle_.reset(model);
  inputs_ = tensors_of(model, adrenoc_input_count(model), adrenoc_input_info);
  outputs_ = tensors_of(model, adrenoc_output_count(model), adrenoc_output_info);
  log(logger, ORT_LOGGING_LEVEL_INFO,
      std::string(adrenoc_model_name(model)) + " runs on " + adrenoc_device_name(model));
  const std::string notes = adrenoc_notes(model);
  if (!notes.empty()) log(logger, ORT_LOGGING_LEVEL_WARNING, notes);
}

}  // namespace adrenoc_ep
