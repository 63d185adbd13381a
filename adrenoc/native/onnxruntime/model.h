// A bundle that a session has loaded, as its nodes need it.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adrenoc.h"
#include "graph.h"
#include "ort.h"

namespace adrenoc_ep {

inline OrtErrorCode code_of(adrenoc_status status) {
  switch (status) {
    case ADRENOC_BAD_ARGUMENT: return ORT_INVALID_ARGUMENT;
    case ADRENOC_NOT_FOUND: return ORT_NO_SUCHFILE;
    case ADRENOC_BAD_BUNDLE: return ORT_NO_MODEL;
    case ADRENOC_UNSUPPORTED: return ORT_NOT_IMPLEMENTED;
    default: return ORT_RUNTIME_EXCEPTION;
  }
}

// Throws Refusal with the runtime's own sentence.
inline void check(adrenoc_status status) {
  if (status != ADRENOC_OK) throw Refusal(code_of(status), adrenoc_last_error());
}

// "key=value" of adrenoc_set_option.
using Options = std::vector<std::string>;

using Tensors = std::vector<adrenoc_tensor>;
using Extents = std::vector<int64_t>;

class Model {
 public:
  struct Tensor {
    std::string name;
    adrenoc_dtype dtype;
  };
  struct Free {
    void operator()(adrenoc_model* model) const noexcept { adrenoc_free(model); }
  };
  using Handle = std::unique_ptr<adrenoc_model, Free>;

  explicit Model(Handle handle)
      : inputs_(tensors_of(handle.get(), adrenoc_input_count(handle.get()), adrenoc_input_info)),
        outputs_(tensors_of(handle.get(), adrenoc_output_count(handle.get()), adrenoc_output_info)),
        handle_(std::move(handle)) {}
  virtual ~Model() = default;

  // What a node of it reads and makes.
  [[nodiscard]] const std::vector<Tensor>& inputs() const { return inputs_; }
  [[nodiscard]] const std::vector<Tensor>& outputs() const { return outputs_; }
  // The extents of output `place`, for these inputs.  Throws Refusal where none take them.
  [[nodiscard]] virtual Extents shape_of(const Tensors& inputs, size_t place) const {
    std::vector<adrenoc_shape> shapes;
    for (const adrenoc_tensor& input : inputs) shapes.push_back(input.shape);
    uint32_t rank = 0;
    const auto ask = [&](int64_t* extents) {
      check(
          adrenoc_output_shape_for(handle(), shapes.data(), shapes.size(), place, extents, &rank));
    };
    ask(nullptr);
    Extents shape(rank);
    if (rank != 0) ask(shape.data());
    return shape;
  }
  // Throws Refusal.
  virtual void run(const Tensors& inputs, const Tensors& outputs,
                   const adrenoc_run_options& options) {
    check(adrenoc_run_with(handle(), inputs.data(), inputs.size(), outputs.data(), outputs.size(),
                           &options));
  }
  void cancel() { check(adrenoc_cancel(handle())); }

 protected:
  [[nodiscard]] adrenoc_model* handle() const { return handle_.get(); }

  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;

 private:
  using Info = adrenoc_status (*)(const adrenoc_model*, size_t, adrenoc_tensor_info*);

  static std::vector<Tensor> tensors_of(const adrenoc_model* model, size_t count, Info info) {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < count; ++i) {
      adrenoc_tensor_info told{};
      check(info(model, i, &told));
      tensors.push_back({told.name, adrenoc_dtype_of(told.dtype)});
    }
    return tensors;
  }

  Handle handle_;
};

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

inline std::vector<int64_t> read_numbers(const adrenoc_tensor& tensor, adrenoc_dtype dtype) {
  return dtype == ADRENOC_INT32 ? read_as<int32_t>(tensor) : read_as<int64_t>(tensor);
}

// Tokens that a mask shows: those in front, and no others.
inline size_t count_shown(const std::vector<int64_t>& mask) {
  const auto end = std::find(mask.begin(), mask.end(), 0);
  const bool is_rest_hidden = std::all_of(end, mask.end(), [](int64_t one) { return one == 0; });
  const bool are_ones = std::all_of(mask.begin(), end, [](int64_t one) { return one == 1; });
  if (are_ones && is_rest_hidden) return static_cast<size_t>(end - mask.begin());
  throw Refusal(
      ORT_INVALID_ARGUMENT,
      "attention_mask hides tokens that others follow: expected a 1 for each token so far, "
      "and zeros behind them or nothing");
}

// A decoder inside of a session, which keeps its caches: a node reads tokens and a mask of all
// tokens so far, and makes the logits after the last.
class Decoder final : public Model {
 public:
  [[nodiscard]] static bool is_one(const adrenoc_model* model) {
    adrenoc_tensor_info info{};
    for (size_t i = 0; i < adrenoc_input_count(model); ++i) {
      check(adrenoc_input_info(model, i, &info));
      if (info.name == std::string(kPast)) return true;
    }
    return false;
  }

  // `states` are the bundle's inputs that no node reads.  Throws Refusal where no tokens are made.
  Decoder(Handle given, const std::set<std::string>& states) : Model(std::move(given)) {
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

  [[nodiscard]] Extents shape_of(const Tensors&, size_t) const override { return logits_; }

  // How many tokens come before the given ones says the mask: none begin anew, and fewer than were
  // there take the context back.
  void run(const Tensors& inputs, const Tensors& outputs,
           const adrenoc_run_options& options) override {
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

 private:
  Extents logits_;
  std::vector<size_t> beside_;  // of the bundle's inputs, those behind tokens and mask, in order
  std::mutex mutex_;            // from binding these to the logits
};

// Loads a bundle; what its developer should know goes to the logger.  Throws Refusal.
[[nodiscard]] inline std::unique_ptr<Model> open_model(const std::string& path,
                                                       const Options& options,
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
