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

// What a verdict depends on.
struct VerdictKey {
  std::string device;  // platform, name and OpenCL version; how launches reach it
  std::string driver;  // CL_DRIVER_VERSION
  std::string bundle;  // digest of the manifest

  // One file for each device and bundle, so that a new driver's verdict takes the place of the old.
  [[nodiscard]] std::string file_name() const;
};

// A folder of them.  What is damaged, of another driver or of another runtime counts as not there.
class VerdictStore {
 public:
  // An empty folder keeps nothing.
  VerdictStore(std::string folder, VerdictKey key);

  // What was wrong, "" if nothing was; none where the key has no verdict yet.
  [[nodiscard]] std::optional<std::string> find() const;

  // Notes that a proof begins: one that hangs, or ends the process, leaves no verdict.  Returns how
  // many began before and did not end.
  int begin() const;

  void keep(const std::string& wrong) const;

  // The proof ended without a verdict.
  void forget() const;

 private:
  [[nodiscard]] std::string path() const;
  [[nodiscard]] std::string digest(const std::string& said) const;
  [[nodiscard]] std::optional<std::string> read(char kind) const;
  void write(char kind, const std::string& text) const;

  std::string folder_;
  VerdictKey key_;
};

}  // namespace adrenoc_runtime
