// A decoder on a device with its context: tokens that it has taken in and made.
#pragma once

#include <tvm/runtime/tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bundle/manifest.h"
#include "generate/token_loop.h"
#include "model/program.h"

namespace adrenoc_runtime {

struct Generation {
  uint32_t most = 0;                         // tokens; 0 for as many as there is room for
  std::optional<std::vector<int64_t>> ends;  // nothing: those of the bundle
  opencl::Sampling sampling;
};

class Session {
 public:
  // Whether to go on.
  using OnToken = std::function<bool(int64_t token)>;

  // `inputs` are those of each program, the states one memory.  Throws Failure (unsupported) for a
  // model that is no decoder.
  Session(const std::vector<Bucket>& buckets, const std::vector<Program>& programs,
          const std::vector<std::vector<tvm::runtime::Tensor>>& inputs, DLDevice device,
          opencl::Recording recording);

  // Whether an input of that name is its own to write, for each program: tokens, and how many came
  // before.
  [[nodiscard]] static bool writes(const std::string& name);
  // Throws Failure (context full) where that ends it; all tokens were told then.
  void generate(const std::vector<int64_t>& prompt, const Generation& how, const OnToken& on_token);
  // Writes what the next token is picked of, after the first `past` tokens and these, and keeps no
  // more. Throws Failure (bad argument) where there are fewer than `past`, or `bytes` are not the
  // logits'.
  void give_logits(uint64_t past, const std::vector<int64_t>& tokens, void* logits, size_t bytes);
  // Tokens of prompts, and made; forgets all but the first so many.
  [[nodiscard]] uint64_t tokens() const;
  void rewind(uint64_t tokens);
  // How many tokens a prompt and the caches begin with, but for its last: that is taken in by the
  // step which makes the next.
  [[nodiscard]] uint64_t shared(const std::vector<int64_t>& prompt) const;
  // After one of these no more are made, where nobody says otherwise.
  [[nodiscard]] const std::vector<int64_t>& ends() const { return ends_; }
  [[nodiscard]] uint64_t rows() const { return static_cast<uint64_t>(loop_->rows()); }
  [[nodiscard]] size_t saved_bytes() const { return loop_->saved_bytes(); }
  [[nodiscard]] std::string save() { return loop_->save(); }
  // Throws Failure (bad argument) for what no session of this model saved.
  void restore(const std::string& saved);
  void forget() { loop_->forget(); }

 private:
  void add_entry(const Manifest& manifest, const Program& program,
                 const std::vector<tvm::runtime::Tensor>& inputs);
  // Takes in all but the last token, which it gives.  Throws Failure where there is none, or no
  // room.
  [[nodiscard]] int64_t take_in(const std::vector<int64_t>& prompt);

  std::vector<int64_t> ends_;
  std::vector<int64_t> suppressed_;
  std::vector<int64_t> suppressed_first_;
  int64_t most_token_ = 0;  // what the model has rows for; 0 where that is not known
  int64_t vocabulary_ = 0;  // logits that a step gives
  uint64_t logits_bytes_ = 0;
  std::unique_ptr<opencl::TokenLoop> loop_;
};

}  // namespace adrenoc_runtime
