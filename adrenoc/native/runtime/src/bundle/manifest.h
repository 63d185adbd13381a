// What the runtime takes from a bundle's manifest.json, buckets.json and devices.json: tensors,
// shapes that it was compiled for and which of them takes some inputs, and GPUs.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/json.h"
#include "files/safetensors.h"

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

  [[nodiscard]] bool is_state(const std::string& input) const {
    return std::find(states.begin(), states.end(), input) != states.end();
  }
};

// Where the tensor of a name is; nothing where there is none.
[[nodiscard]] inline std::optional<size_t> place_of(const std::vector<TensorSpec>& specs,
                                                    const std::string& name) {
  const auto found = std::find_if(specs.begin(), specs.end(),
                                  [&](const TensorSpec& spec) { return spec.name == name; });
  if (found == specs.end()) return std::nullopt;
  return static_cast<size_t>(found - specs.begin());
}

constexpr size_t kMostLetters = 100;

inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Whether it begins with a letter, digit or `_` and has nothing but these and `marks` after it.
inline bool is_name(std::string_view text, size_t most, std::string_view marks) {
  const auto is_plain = [](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_'; };
  return !text.empty() && text.size() <= most && is_plain(text.front()) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return is_plain(c) || marks.find(c) != marks.npos; });
}

// As it may be printed: what moves a cursor does not get through, nor do pages of text.
inline std::string shown(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, kMostLetters)) out += c < ' ' || c > '~' ? '?' : c;
  return out + (text.size() > kMostLetters ? "..." : "");
}

inline void enforce(bool fits, const std::string& text, const std::string& where,
                    const char* expected) {
  if (!fits) refuse_bundle({where, " is \"", shown(text), "\", expected ", expected});
}

// Of a bundle: letters, digits, `_`, `.` and `-`.  This and the next two throw Failure (bad bundle)
// that names the place `where` unless the text is such a name.
inline void check_bundle_name(const std::string& text, const std::string& where) {
  enforce(is_name(text, kMostLetters, ".-"), text, where,
          "a name of at most 100 letters, digits, `_`, `.` and `-`");
}

constexpr size_t kMostInPart = 200;

// A word such as "float32", "adreno:750" or "aarch64".
inline void check_word(const std::string& text, const std::string& where) {
  enforce(is_name(text, kMostInPart, ".:+-"), text, where,
          "a word of at most 200 letters, digits, `_`, `.`, `:`, `+` and `-`");
}

constexpr int64_t kSchemaVersion = 3;
constexpr int64_t kDeflatedVersion = 4;  // some files may be stored deflated
constexpr const char* kManifestFile = "manifest.json";

inline std::vector<int64_t> read_integers(const Json::List& list) {
  std::vector<int64_t> numbers;
  for (const Json& number : list) numbers.push_back(number.integer());
  return numbers;
}

// What older bundles lack, and others leave out where it is empty.
inline const Json::List& list_or_empty(const Json& json, const std::string& key) {
  static const Json::List none;
  return json.object().count(key) == 0 ? none : json.at(key).list();
}

using CheckName = void (*)(const std::string& text, const std::string& where);

inline const std::string& read_name(const Json& value, CheckName check) {
  check(value.text(), value.where());
  return value.text();
}

inline std::vector<int64_t> read_shape(const Json& spec) {
  return read_integers(spec.at("shape").list());
}

inline std::vector<TensorSpec> read_tensors(const Json& specs) {
  std::vector<TensorSpec> tensors;
  for (const Json& spec : specs.list()) {
    TensorSpec tensor{spec.at("name").text(), read_name(spec.at("dtype"), check_word),
                      read_shape(spec), 0, read_integers(list_or_empty(spec, "bounds"))};
    tensor.bytes = tensor_bytes(tensor.dtype, tensor.shape, spec.where());
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

inline std::vector<ParamSpec> read_params(const Json& specs) {
  std::vector<ParamSpec> params;
  for (const Json& spec : specs.list()) {
    params.push_back({spec.at("name").text(), read_name(spec.at("dtype"), check_word),
                      read_shape(spec), read_name(spec.at("scope"), check_word)});
  }
  return params;
}

constexpr size_t kMostInPath = 1000;
constexpr long kMostFolders = 7;

// The path of a file or folder inside of the bundle.
inline void check_path(const std::string& text, const std::string& where) {
  bool fits =
      text.size() <= kMostInPath && std::count(text.begin(), text.end(), '/') <= kMostFolders;
  for (size_t start = 0; fits && start <= text.size();) {
    const size_t end = std::min(text.find('/', start), text.size());
    fits = is_name(std::string_view(text).substr(start, end - start), kMostInPart, ".+-");
    start = end + 1;
  }
  enforce(fits, text, where, "the path of a file inside of the bundle");
}

inline std::map<std::string, FileEntry> read_files(const Json& entries) {
  std::map<std::string, FileEntry> files;
  for (const Json& entry : entries.list()) {
    const std::string& path = read_name(entry.at("path"), check_path);
    const bool is_deflated = entry.object().count("inflated_bytes") != 0;
    FileEntry file{entry.at("bytes").count(), entry.at("sha256").text(),
                   is_deflated ? entry.at("inflated_bytes").count() : 0};
    if (!files.emplace(path, std::move(file)).second) {
      refuse_bundle({entry.where(), " lists ", path, " again"});
    }
  }
  return files;
}

inline std::vector<std::string> read_states(const Json& json, const char* key,
                                            const std::vector<TensorSpec>& inputs) {
  std::vector<std::string> states;
  for (const Json& state : list_or_empty(json, key)) {
    if (!place_of(inputs, state.text())) refuse_bundle({state.where(), " is no input"});
    states.push_back(state.text());
  }
  return states;
}

// Throws Failure (bad bundle) where the text is no manifest of the version that this runtime reads.
[[nodiscard]] inline Manifest read_manifest(std::string_view text) {
  const Json json = Json::parse(text, kManifestFile);
  const int64_t version = json.at("schema_version").integer();
  if (version != kSchemaVersion && version != kDeflatedVersion) {
    refuse_bundle({kManifestFile, " has schema version ", version, "; this runtime reads ",
                   kSchemaVersion, " and ", kDeflatedVersion});
  }
  std::vector<TensorSpec> inputs = read_tensors(json.at("inputs"));
  std::vector<std::string> states = read_states(json, "states", inputs);
  std::vector<std::string> recurrent = read_states(json, "recurrent", inputs);
  return {read_name(json.at("name"), check_bundle_name),
          read_name(json.at("target").at("name"), check_word),
          read_name(json.at("library").at("machine"), check_word),
          !json.at("kernels").list().empty(),
          std::move(inputs),
          read_tensors(json.at("outputs")),
          std::move(states),
          std::move(recurrent),
          json.object().count("slack") == 0 ? 0 : json.at("slack").integer(),
          read_integers(list_or_empty(json, "end_tokens")),
          read_integers(list_or_empty(json, "suppress_tokens")),
          read_integers(list_or_empty(json, "begin_suppress_tokens")),
          read_params(json.at("params")),
          read_files(json.at("files"))};
}

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

  [[nodiscard]] bool has(const std::string& input) const {
    return std::find(inputs.begin(), inputs.end(), input) != inputs.end();
  }
};

struct BucketList {
  std::vector<std::string> folders;     // the smallest first; "." for the bundle itself
  std::vector<std::string> signatures;  // of each; all "" where buckets differ in shapes alone
  Batch batch;
};

constexpr const char* kBucketsFile = "buckets.json";
constexpr size_t kMostBuckets = 1024;

inline Batch read_batch(const Json& json) {
  Batch batch;
  for (const Json& name : json.at("inputs").list()) batch.inputs.push_back(name.text());
  for (const Json& output : json.at("outputs").list()) {
    const uint64_t axis = output.at("axis").count();
    batch.outputs.push_back({output.at("name").text(), axis, output.at("factor").integer()});
  }
  batch.refused = json.at("refused").text();
  return batch;
}

// Reads buckets.json.  Throws Failure (bad bundle).
[[nodiscard]] inline BucketList read_buckets(std::string_view text) {
  const Json json = Json::parse(text, kBucketsFile);
  BucketList list;
  for (const Json& entry : json.at("buckets").list()) {
    const Json& folder = entry.at("folder");
    if (folder.text() != ".") check_path(folder.text(), folder.where());
    list.folders.push_back(folder.text());
    const auto signature = entry.object().find("signature");
    list.signatures.push_back(signature == entry.object().end() ? "" : signature->second.text());
  }
  if (list.folders.empty() || list.folders.size() > kMostBuckets) {
    refuse_bundle({kBucketsFile, " lists ", list.folders.size(), " buckets"});
  }
  list.batch = read_batch(json.at("batch"));
  return list;
}

inline void check_names(const std::vector<TensorSpec>& first,
                        const std::vector<TensorSpec>& other) {
  const auto alike = [](const TensorSpec& a, const TensorSpec& b) {
    return a.name == b.name && a.dtype == b.dtype && a.shape.size() == b.shape.size();
  };
  if (!std::equal(first.begin(), first.end(), other.begin(), other.end(), alike)) {
    refuse_bundle("the buckets of the bundle differ in more than the extents of their tensors");
  }
}

// A state has one memory, whichever bucket runs.
inline void check_states(const std::vector<Bucket>& buckets) {
  std::map<std::string, const TensorSpec*> held;
  for (const Bucket& bucket : buckets) {
    for (const TensorSpec& spec : bucket.manifest.inputs) {
      if (!bucket.manifest.is_state(spec.name)) continue;
      const TensorSpec& known = *held.emplace(spec.name, &spec).first->second;
      if (known.shape != spec.shape || known.dtype != spec.dtype) {
        refuse_bundle({"the state `", spec.name, "` has not one form in all signatures"});
      }
    }
  }
}

inline void check_signatures(const std::vector<Bucket>& buckets, const Batch& batch) {
  std::set<std::string> names;
  for (const Bucket& bucket : buckets) {
    if (bucket.signature.empty() || !names.insert(bucket.signature).second) {
      refuse_bundle({kBucketsFile, " has not one name for each signature"});
    }
    if (!batch.inputs.empty() || !batch.outputs.empty()) {
      refuse_bundle("the signatures of the bundle have a batch");
    }
  }
  check_states(buckets);
}

// What is common to all buckets: names and dtypes of the tensors, but for outputs of decoders.
// Signatures have states alone in common, in one form, and each has a name of its own.
// Throws Failure (bad bundle).
inline void check_alike(const std::vector<Bucket>& buckets, const Batch& batch) {
  const auto named = [](const Bucket& bucket) { return !bucket.signature.empty(); };
  if (std::any_of(buckets.begin(), buckets.end(), named)) {
    check_signatures(buckets, batch);
    return;
  }
  const Manifest& first = buckets.front().manifest;
  for (const Bucket& bucket : buckets) {
    check_names(first.inputs, bucket.manifest.inputs);
    // A decoder of several tokens fills its caches, and makes nothing else.
    if (first.states.empty()) check_names(first.outputs, bucket.manifest.outputs);
  }
  for (const TensorSpec& spec : first.inputs) {
    if (batch.has(spec.name) && spec.shape.empty()) refuse_bundle({spec.name, " has no batch"});
  }
  for (const BatchOutput& output : batch.outputs) {
    const auto place = place_of(first.outputs, output.name);
    if (!place || output.axis >= first.outputs[*place].shape.size() || output.factor < 1) {
      refuse_bundle({kBucketsFile, " tells what no output `", output.name, "` can have"});
    }
  }
}

using Shape = std::vector<int64_t>;

// A bucket and how an app sees it: shapes with the batch that was asked for.
struct Chosen {
  size_t bucket = 0;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
};

// A bucket in the shapes that it was compiled for.
[[nodiscard]] inline Chosen whole_bucket(const std::vector<Bucket>& buckets, size_t index) {
  const Manifest& manifest = buckets[index].manifest;
  return {index, manifest.inputs, manifest.outputs};
}

// Whether a batch of `shape` may be filled up to `whole`.
inline bool fills_up(const Shape& shape, const Shape& whole) {
  return shape.size() == whole.size() && !shape.empty() && shape[0] > 0 && shape[0] < whole[0] &&
         std::equal(shape.begin() + 1, shape.end(), whole.begin() + 1);
}

// The batch that a bucket would run with, if it takes the shapes; 0 where no input with a batch has
// a shape.
inline std::optional<int64_t> batch_taken(const std::vector<TensorSpec>& inputs, const Batch& batch,
                                          const std::vector<std::optional<Shape>>& shapes) {
  int64_t given = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!shapes[i].has_value()) continue;
    const bool has_batch = batch.has(inputs[i].name);
    const bool fills = has_batch && batch.refused.empty() && fills_up(*shapes[i], inputs[i].shape);
    if (*shapes[i] != inputs[i].shape && !fills) return std::nullopt;
    if (!has_batch) continue;
    if (given != 0 && given != shapes[i]->front()) return std::nullopt;
    given = shapes[i]->front();
  }
  return given;
}

inline void set_extent(TensorSpec* spec, size_t axis, int64_t extent) {
  spec->shape[axis] = extent;
  spec->bytes = tensor_bytes(spec->dtype, spec->shape, spec->name);
}

// Gives the tensors that have a batch that of `given` elements; one for which the bucket was
// compiled leaves them as they are.
inline void set_batch(Chosen* chosen, const Batch& batch, int64_t given) {
  bool fills = false;
  for (TensorSpec& spec : chosen->inputs) {
    if (!batch.has(spec.name) || spec.shape[0] == given) continue;
    set_extent(&spec, 0, given);
    fills = true;
  }
  if (!fills) return;
  for (const BatchOutput& output : batch.outputs) {
    for (TensorSpec& spec : chosen->outputs) {
      if (spec.name != output.name) continue;
      if (given > spec.shape[output.axis] / output.factor) {
        refuse_bundle({output.name, " has fewer elements than the batch"});
      }
      set_extent(&spec, output.axis, given * output.factor);
    }
  }
}

inline std::string joined(const Shape& shape) {
  std::string text;
  for (const int64_t extent : shape) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text.empty() ? "scalar" : text;
}

// "1x3x224x224", inputs joined by "_": also the name of the bucket's folder.
inline std::string bucket_name(const std::vector<TensorSpec>& inputs) {
  std::string text;
  for (const TensorSpec& spec : inputs) text += (text.empty() ? "" : "_") + joined(spec.shape);
  return text;
}

[[noreturn]] inline void refuse_shapes(const std::vector<Bucket>& buckets, const Batch& batch,
                                       const std::string& signature,
                                       const std::vector<std::optional<Shape>>& shapes) {
  std::string asked;
  for (const auto& shape : shapes) {
    asked += (asked.empty() ? "" : "_") + (shape.has_value() ? joined(*shape) : "any");
  }
  std::string listed;
  for (const Bucket& bucket : buckets) {
    if (bucket.signature != signature) continue;
    listed += (listed.empty() ? "" : ", ") + bucket_name(bucket.manifest.inputs);
  }
  std::string message = "no bucket takes " + asked + "; the bundle has " + listed;
  if (!batch.refused.empty()) {
    message += "; a smaller batch is not filled up, since " + batch.refused;
  }
  refuse_argument(message);
}

// The smallest bucket of a signature that takes inputs of these shapes, one an input; nothing takes
// any. Throws Failure (bad argument), naming all buckets, where none does.
[[nodiscard]] inline Chosen choose_bucket(const std::vector<Bucket>& buckets, const Batch& batch,
                                          const std::string& signature,
                                          const std::vector<std::optional<Shape>>& shapes) {
  for (size_t index = 0; index < buckets.size(); ++index) {
    if (buckets[index].signature != signature) continue;
    const auto given = batch_taken(buckets[index].manifest.inputs, batch, shapes);
    if (!given.has_value()) continue;
    Chosen chosen = whole_bucket(buckets, index);
    if (*given != 0) set_batch(&chosen, batch, *given);
    return chosen;
  }
  refuse_shapes(buckets, batch, signature, shapes);
}

// The bucket of the signature of that name.  Throws Failure (bad argument), naming all, where there
// is none.
[[nodiscard]] inline size_t find_signature(const std::vector<Bucket>& buckets,
                                           const std::string& name) {
  std::string listed;
  for (size_t index = buckets.size(); index-- > 0;) {
    const std::string& signature = buckets[index].signature;
    if (signature.empty()) break;
    if (signature == name) return index;
    listed += (listed.empty() ? "" : ", ") + signature;
  }
  refuse_argument(listed.empty() ? "the bundle holds one call, and no signatures to choose from"
                                 : "no signature is called " + name + "; the bundle has " + listed);
}

// The number as it stands on the box: "642L".
inline std::string title_of(std::string gpu) {
  std::transform(gpu.begin(), gpu.end(), gpu.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  return gpu;
}

struct Edition {
  std::string folder;  // "." for the common one
  std::string gpu;     // the number of an Adreno ("750"); "" of the common one
  std::string driver;  // "" where any driver will do

  // What it is for, in words.
  [[nodiscard]] std::string title() const {
    if (gpu.empty()) return "any Adreno";
    return "Adreno " + title_of(gpu) + (driver.empty() ? "" : " with driver " + driver);
  }
};

constexpr const char* kEditionsFile = "devices.json";
constexpr const char* kCommon = ".";
constexpr const char* kFolder = "devices/";
constexpr size_t kMostEditions = 1024;

// Reads devices.json: the common edition is the last one.  Throws Failure (bad bundle).
[[nodiscard]] inline std::vector<Edition> read_editions(std::string_view text) {
  const Json json = Json::parse(text, kEditionsFile);
  std::vector<Edition> editions;
  for (const Json& entry : json.at("editions").list()) {
    Edition edition{entry.at("folder").text(), entry.at("gpu").text(), entry.at("driver").text()};
    const Json& folder = entry.at("folder");
    if (edition.folder != kCommon) {
      check_path(edition.folder, folder.where());
      if (edition.folder.rfind(kFolder, 0) != 0 || edition.gpu.empty()) {
        refuse_bundle({folder.where(), " is none of devices/NAME"});
      }
    }
    editions.push_back(std::move(edition));
  }
  const auto is_common = [](const Edition& edition) { return edition.gpu.empty(); };
  const auto commons = std::count_if(editions.begin(), editions.end(), is_common);
  if (commons != 1 || !is_common(editions.back()) || editions.size() > kMostEditions) {
    refuse_bundle({kEditionsFile, " lists ", editions.size(),
                   " editions, expected one for any Adreno as the last"});
  }
  return editions;
}

struct RankedEditions {
  std::vector<Edition> editions;  // the best first, the common one last
  std::string reason;
};

// Kernels of which GPUs there are: "660, 750".
inline std::string list_gpus(const std::vector<Edition>& editions) {
  std::string listed;
  std::vector<std::string> seen;
  for (const Edition& edition : editions) {
    const bool is_new = std::find(seen.begin(), seen.end(), edition.gpu) == seen.end();
    if (edition.gpu.empty() || !is_new) continue;
    seen.push_back(edition.gpu);
    listed += (listed.empty() ? "" : ", ") + title_of(edition.gpu);
  }
  return listed;
}

// The editions that a device may run: `gpu` is the number of an Adreno, "" for another device.
[[nodiscard]] inline RankedEditions rank_editions(const std::vector<Edition>& editions,
                                                  const std::string& gpu,
                                                  const std::string& driver) {
  std::vector<Edition> own;
  std::vector<Edition> of_any_driver;
  bool has_gpu = false;
  for (const Edition& edition : editions) {
    if (gpu.empty() || edition.gpu != gpu) continue;
    has_gpu = true;
    if (edition.driver.empty()) of_any_driver.push_back(edition);
    if (!edition.driver.empty() && edition.driver == driver) own.push_back(edition);
  }
  RankedEditions ranked;
  const std::string says = "the driver says Adreno " + title_of(gpu);
  if (!own.empty()) {
    ranked.reason = says + " and is the one that it was made for";
  } else if (!of_any_driver.empty()) {
    ranked.reason = says;
  } else if (has_gpu) {
    ranked.reason =
        "the kernels for Adreno " + title_of(gpu) + " are for other drivers than " + driver;
  } else {
    ranked.reason = (gpu.empty() ? "the driver names no Adreno" : says) +
                    ", and the bundle has kernels for " + list_gpus(editions);
  }
  ranked.editions = std::move(own);
  std::move(of_any_driver.begin(), of_any_driver.end(), std::back_inserter(ranked.editions));
  ranked.editions.push_back(editions.back());
  return ranked;
}

}  // namespace adrenoc_runtime
