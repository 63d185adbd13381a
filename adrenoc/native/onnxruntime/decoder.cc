#include "decoder.h"

#include <algorithm>
#include <utility>

namespace adrenoc_ep {
namespace {

// Names of nodes and bundles (adrenoc/bundle/chat.py).
constexpr const char* kTokens = "input_ids";
constexpr const char* kMask = "attention_mask";
constexpr const char* kPast = "past_length";
constexpr const char* kLogits = "logits";

template <typename Number>
std::vector<int64_t> read_as(const adrenoc_tensor& tensor) {
  const auto* first = static_cast<const Number*>(tensor.memory);
  return {first, first + tensor.bytes / sizeof(Number)};
}

std::vector<int64_t> read_numbers(const adrenoc_tensor& tensor, adrenoc_dtype dtype) {
  return dtype == ADRENOC_INT32 ? read_as<int32_t>(tensor) : read_as<int64_t>(tensor);
}

// Tokens that a mask shows: those in front, and no others.
size_t count_shown(const std::vector<int64_t>& mask) {
  const auto end = std::find(mask.begin(), mask.end(), 0);
  const bool is_rest_hidden = std::all_of(end, mask.end(), [](int64_t one) { return one == 0; });
  const bool are_ones = std::all_of(mask.begin(), end, [](int64_t one) { return one == 1; });
  if (are_ones && is_rest_hidden) return static_cast<size_t>(end - mask.begin());
  throw Refusal(ORT_INVALID_ARGUMENT,
                "attention_mask hides tokens that others follow: expected a 1 for each token so far, "
                "and zeros behind them or nothing");
}

}  // namespace

bool Decoder::is_one(const adrenoc_model* model) {
  adrenoc_tensor_info info{};
  for (size_t i = 0; i < adrenoc_input_count(model); ++i) {
    check(adrenoc_input_info(model, i, &info));
    if (info.name == std::string(kPast)) return true;
  }
  return false;
}

Decoder::Decoder(Handle given, const std::set<std::string>& states) : Model(std::move(given)) {
  check(adrenoc_context(handle(), nullptr, nullptr));
  std::vector<Tensor> read{{kTokens, ADRENOC_INT64}, {kMask, ADRENOC_INT64}};
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const std::string& name = inputs_[i].name;
    if (name == kTokens) read[0].dtype = inputs_[i].dtype;
    if (name == kTokens || name == kPast || states.count(name) != 0) continue;
    beside_.push_back(i);
    read.push_back(inputs_[i]);
  }
  inputs_ = std::move(read);
  // The smallest bucket is that of one token, which has logits.
  adrenoc_tensor_info info{};
  for (size_t i = 0; info.name == nullptr || info.name != std::string(kLogits); ++i) {
    check(adrenoc_bucket_output_info(handle(), 0, i, &info));
  }
  logits_.assign(info.shape, info.shape + info.rank);
  outputs_ = {{kLogits, adrenoc_dtype_of(info.dtype)}};
}

Extents Decoder::shape_of(const Tensors&, size_t) const { return logits_; }

void Decoder::run(const Tensors& inputs, const Tensors& outputs,
                  const adrenoc_run_options& options) {
  const std::vector<int64_t> tokens = read_numbers(inputs[0], inputs_[0].dtype);
  const size_t total = count_shown(read_numbers(inputs[1], inputs_[1].dtype));
  if (total < tokens.size()) {
    throw Refusal(ORT_INVALID_ARGUMENT, "attention_mask shows " + std::to_string(total) +
                                            " tokens, expected at least the " +
                                            std::to_string(tokens.size()) + " of input_ids");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 0; i < beside_.size(); ++i) {
    const adrenoc_tensor& tensor = inputs[i + 2];
    check(adrenoc_bind_input(handle(), beside_[i], tensor.memory, tensor.bytes));
  }
  check(adrenoc_logits(handle(), total - tokens.size(), tokens.data(), tokens.size(),
                       outputs[0].memory, outputs[0].bytes, &options));
}

}  // namespace adrenoc_ep
