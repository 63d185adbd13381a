// The shapes that a bundle was compiled for, and which of them takes some inputs.
// The rules are those of adrenoc/bundle/buckets.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bundle/manifest.h"

namespace adrenoc_runtime {

// The model for one choice of shapes, or by one of its signatures.
struct Bucket {
  Manifest manifest;
  std::string signature;  // "" where buckets differ in shapes alone
  std::string library_path;  // for the dynamic loader, valid as long as the bundle lives
};

// An output whose axis `axis` holds `factor` elements for each element of the batch.
struct BatchOutput {
  std::string name;
  uint64_t axis;
  int64_t factor;
};

// The batch is axis 0 of `inputs`.  Where `refused` is empty, a smaller one is filled up with
// zeros, and what comes of these is cut off.
struct Batch {
  std::vector<std::string> inputs;
  std::vector<BatchOutput> outputs;
  std::string refused;

  [[nodiscard]] bool has(const std::string& input) const;
};

struct BucketList {
  std::vector<std::string> folders;     // the smallest first; "." for the bundle itself
  std::vector<std::string> signatures;  // of each; all "" where buckets differ in shapes alone
  Batch batch;
};

// Reads buckets.json.  Throws Failure (bad bundle).
[[nodiscard]] BucketList read_buckets(std::string_view text);

// What is common to all buckets: names and dtypes of the tensors, but for outputs of decoders.
// Signatures have states alone in common, in one form, and each has a name of its own.
// Throws Failure (bad bundle).
void check_alike(const std::vector<Bucket>& buckets, const Batch& batch);

using Shape = std::vector<int64_t>;

// A bucket and how an app sees it: shapes with the batch that was asked for.
struct Chosen {
  size_t bucket = 0;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
};

// The smallest bucket of a signature that takes inputs of these shapes, one an input; nothing takes any.
// Throws Failure (bad argument), naming all buckets, where none does.
[[nodiscard]] Chosen choose_bucket(const std::vector<Bucket>& buckets, const Batch& batch,
                                   const std::string& signature,
                                   const std::vector<std::optional<Shape>>& shapes);

// The bucket of the signature of that name.  Throws Failure (bad argument), naming all, where there is
// none.
[[nodiscard]] size_t find_signature(const std::vector<Bucket>& buckets, const std::string& name);

// A bucket in the shapes that it was compiled for.
[[nodiscard]] Chosen whole_bucket(const std::vector<Bucket>& buckets, size_t index);

}  // namespace adrenoc_runtime
