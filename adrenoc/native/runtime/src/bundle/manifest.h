// What the runtime takes from a bundle's manifest.json, buckets.json and devices.json: tensors,
// shapes that it was compiled for and which of them takes some inputs, and GPUs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adrenoc_runtime {

struct TensorSpec {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t bytes;
  std::vector<int64_t> bounds{};  // the smallest and the largest number, where it indexes something
};

struct ParamSpec {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string scope;  // "global" or "global.texture"
};

// As it is stored.
struct FileEntry {
  uint64_t bytes;
  std::string sha256;
  uint64_t inflated_bytes;  // of what it holds, where it is stored deflated, else 0
};

struct Manifest {
  std::string name;
  std::string target;
  std::string machine;  // of model.so: "aarch64"
  bool has_kernels;     // of OpenCL: else its code is for the CPU alone
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::vector<std::string> states;     // inputs whose memory a run changes for the next one
  std::vector<std::string> recurrent;  // those of a decoder that every token changes as a whole
  int64_t slack;  // rows that caches of a window hold beyond it; 0 where all hold every row
  std::vector<int64_t> end_tokens;       // of a decoder: after one of these it has no more to say
  std::vector<int64_t> suppress_tokens;  // of a decoder: it never makes these
  std::vector<int64_t> begin_suppress_tokens;  // nor these as the first behind a prompt
  std::vector<ParamSpec> params;
  std::map<std::string, FileEntry> files;  // by path inside the bundle
};

// Throws Failure (bad bundle) where the text is no manifest of the version that this runtime reads.
[[nodiscard]] Manifest read_manifest(std::string_view text);

// Each throws Failure (bad bundle) that names the place `where` unless the text is such a name.

// Of a bundle: letters, digits, `_`, `.` and `-`.
void check_bundle_name(const std::string& text, const std::string& where);

// A word such as "float32", "adreno:750" or "aarch64".
void check_word(const std::string& text, const std::string& where);

// The path of a file or folder inside of the bundle.
void check_path(const std::string& text, const std::string& where);

// The model for one choice of shapes, or by one of its signatures.
struct Bucket {
  Manifest manifest;
  std::string signature;     // "" where buckets differ in shapes alone
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

// The smallest bucket of a signature that takes inputs of these shapes, one an input; nothing takes
// any. Throws Failure (bad argument), naming all buckets, where none does.
[[nodiscard]] Chosen choose_bucket(const std::vector<Bucket>& buckets, const Batch& batch,
                                   const std::string& signature,
                                   const std::vector<std::optional<Shape>>& shapes);

// The bucket of the signature of that name.  Throws Failure (bad argument), naming all, where there
// is none.
[[nodiscard]] size_t find_signature(const std::vector<Bucket>& buckets, const std::string& name);

// A bucket in the shapes that it was compiled for.
[[nodiscard]] Chosen whole_bucket(const std::vector<Bucket>& buckets, size_t index);

struct Edition {
  std::string folder;  // "." for the common one
  std::string gpu;     // the number of an Adreno ("750"); "" of the common one
  std::string driver;  // "" where any driver will do

  // What it is for, in words.
  [[nodiscard]] std::string title() const;
};

// Reads devices.json: the common edition is the last one.  Throws Failure (bad bundle).
[[nodiscard]] std::vector<Edition> read_editions(std::string_view text);

struct RankedEditions {
  std::vector<Edition> editions;  // the best first, the common one last
  std::string reason;
};

// The editions that a device may run: `gpu` is the number of an Adreno, "" for another device.
[[nodiscard]] RankedEditions rank_editions(const std::vector<Edition>& editions,
                                           const std::string& gpu, const std::string& driver);

}  // namespace adrenoc_runtime
