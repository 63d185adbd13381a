// A decoder inside of a session, which keeps its caches: a node reads tokens and a mask of all tokens
// so far, and makes the logits after the last.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "model.h"

namespace adrenoc_ep {

class Decoder final : public Model {
 public:
  [[nodiscard]] static bool is_one(const adrenoc_model* model);

  // `states` are the bundle's inputs that no node reads.  Throws Refusal where no tokens are made.
  Decoder(Handle handle, const std::set<std::string>& states);

  [[nodiscard]] Extents shape_of(const Tensors& inputs, size_t place) const override;
  // How many tokens come before the given ones says the mask: none begin anew, and fewer than were
  // there take the context back.
  void run(const Tensors& inputs, const Tensors& outputs,
           const adrenoc_run_options& options) override;

 private:
  Extents logits_;
  std::vector<size_t> beside_;  // of the bundle's inputs, those behind tokens and mask, in order
  std::mutex mutex_;            // from binding these to the logits
};

}  // namespace adrenoc_ep
