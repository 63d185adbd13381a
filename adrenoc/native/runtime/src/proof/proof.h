// What a bundle has to compute: inputs that anybody can draw again, and numbers of what comes of
// them, by the reference.  `adrenoc prove` writes it, as proof.json (adrenoc/lab/prove/proof.py).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bundle/manifest.h"

namespace adrenoc_runtime {

// Numbers (low + random % count) * step.
struct DrawnInput {
  uint64_t seed;
  int64_t low;
  uint64_t count;
  double step;
};

// Every `stride`-th number of an output, from the `first` on; nothing where any will do.
struct ProvenOutput {
  size_t index;      // among the model's outputs
  std::string part;  // what a user knows it by: "the output `y`", "conv2d: one row"
  uint64_t first;
  uint64_t stride;
  std::vector<std::optional<double>> values;
  double allowed;     // the largest error
  double may_differ;  // the share of them that may be beyond that: ties of labels
};

struct Trial {
  size_t bucket;
  std::vector<DrawnInput> inputs;  // one an input of the model
  std::vector<ProvenOutput> outputs;
};

// Throws Failure (bad bundle) where the text is no proof of a bundle with these buckets.
[[nodiscard]] std::vector<Trial> read_proof(std::string_view text,
                                            const std::vector<Bucket>& buckets);

// The bytes of an input.  Another `turn` gives other numbers; the proof's are those of turn 0.
[[nodiscard]] std::vector<char> draw(const DrawnInput& input, const TensorSpec& spec,
                                     uint64_t turn);

// What is wrong with the bytes of an output: "element [0, 3, 1, 1] is 0.25, expected 0.5 ...";
// "" where nothing is.
[[nodiscard]] std::string find_wrong(const ProvenOutput& expected, const TensorSpec& spec,
                                     const std::vector<char>& seen);

// The first element of which two runs gave other bits, in the same words; "" where there is none.
[[nodiscard]] std::string find_unsteady(const TensorSpec& spec, const std::vector<char>& before,
                                        const std::vector<char>& after);

}  // namespace adrenoc_runtime
