// A bundle that a session has loaded, as its nodes need it.
#ifndef ADRENOC_ONNXRUNTIME_MODEL_H_
#define ADRENOC_ONNXRUNTIME_MODEL_H_

#include <memory>
#include <string>
#include <vector>

#include "adrenoc.h"
#include "ort.h"

namespace adrenoc_ep {

// Throws Refusal with the runtime's own sentence.
void check(adrenoc_status status);

// "key=value" of adrenoc_set_option.
using Options = std::vector<std::string>;

class Model {
 public:
  struct Tensor {
    std::string name;
    adrenoc_dtype dtype;
  };

  // Loads a bundle; what its developer should know goes to the logger.  Throws Refusal.
  Model(const std::string& path, const Options& options, const OrtLogger* logger);

  [[nodiscard]] adrenoc_model* handle() const { return handle_.get(); }
  [[nodiscard]] const std::vector<Tensor>& inputs() const { return inputs_; }
  [[nodiscard]] const std::vector<Tensor>& outputs() const { return outputs_; }

 private:
  struct Free {
    void operator()(adrenoc_model* model) const noexcept { adrenoc_free(model); }
  };
  std::unique_ptr<adrenoc_model, Free> handle_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;
};

}  // namespace adrenoc_ep

#endif  // ADRENOC_ONNXRUNTIME_MODEL_H_
