// A bundle that a session has loaded, as its nodes need it.
#pragma once

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

  explicit Model(Handle handle);
  virtual ~Model() = default;

  // What a node of it reads and makes.
  [[nodiscard]] const std::vector<Tensor>& inputs() const { return inputs_; }
  [[nodiscard]] const std::vector<Tensor>& outputs() const { return outputs_; }
  // The extents of output `place`, for these inputs.  Throws Refusal where none take them.
  [[nodiscard]] virtual Extents shape_of(const Tensors& inputs, size_t place) const;
  // Throws Refusal.
  virtual void run(const Tensors& inputs, const Tensors& outputs,
                   const adrenoc_run_options& options);
  void cancel();

 protected:
  [[nodiscard]] adrenoc_model* handle() const { return handle_.get(); }

  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;

 private:
  Handle handle_;
};

// Loads a bundle; what its developer should know goes to the logger.  Throws Refusal.
[[nodiscard]] std::unique_ptr<Model> open_model(const std::string& path, const Options& options,
                                                const OrtLogger* logger);

}  // namespace adrenoc_ep
