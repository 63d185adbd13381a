// A node that a bundle computes in place of one or more of onnxruntime's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model.h"
#include "ort.h"

namespace adrenoc_ep {

// The limit of this thread's next runs, in milliseconds; 0 for none.
void set_deadline_ms(double ms);

class Part final : public OrtNodeComputeInfo {
 public:
  // `inputs` and `outputs` name the tensors of the node that onnxruntime calls; `context_inputs` and
  // `context_outputs` those that stand for the bundle's.  By name where all of the bundle's names are
  // among these, else by their order.  Throws Refusal where they do not fit.
  Part(std::shared_ptr<Model> model, const std::vector<std::string>& inputs,
       const std::vector<std::string>& outputs, const std::vector<std::string>& context_inputs,
       const std::vector<std::string>& context_outputs);

 private:
  static OrtStatus* create_state(OrtNodeComputeInfo* self, void*, void** state) noexcept;
  static OrtStatus* compute(OrtNodeComputeInfo* self, void*, OrtKernelContext* context) noexcept;
  static void release_state(OrtNodeComputeInfo* self, void* state) noexcept;
  void run(OrtKernelContext* context) const;

  std::shared_ptr<Model> model_;
  std::vector<size_t> input_of_;   // input i of the bundle is input input_of_[i] of the node
  std::vector<size_t> output_of_;  // output i of the node is output output_of_[i] of the bundle
};

}  // namespace adrenoc_ep
