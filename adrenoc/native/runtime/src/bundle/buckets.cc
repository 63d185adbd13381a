#include "bundle/buckets.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/failure.h"
#include "base/json.h"
#include "files/safetensors.h"

namespace adrenoc_runtime {
namespace {

constexpr const char* kBucketsFile = "buckets.json";
constexpr size_t kMostBuckets = 1024;

std::string joined(const Shape& shape) {
  std::string text;
  for (const int64_t extent : shape) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text.empty() ? "scalar" : text;
}

// "1x3x224x224", inputs joined by "_": also the name of the bucket's folder.
std::string bucket_name(const std::vector<TensorSpec>& inputs) {
  std::string text;
  for (const TensorSpec& spec : inputs) text += (text.empty() ? "" : "_") + joined(spec.shape);
  return text;
}

Batch read_batch(const Json& json) {
  Batch batch;
  for (const Json& name : json.at("inputs").list()) batch.inputs.push_back(name.text());
  for (const Json& output : json.at("outputs").list()) {
    const uint64_t axis = output.at("axis").count();
    batch.outputs.push_back({output.at("name").text(), axis, output.at("factor").integer()});
  }
  batch.refused = json.at("refused").text();
  return batch;
}

void check_names(const std::vector<TensorSpec>& first, const std::vector<TensorSpec>& other) {
  const auto alike = [](const TensorSpec& a, const TensorSpec& b) {
    return a.name == b.name && a.dtype == b.dtype && a.shape.size() == b.shape.size();
  };
  if (!std::equal(first.begin(), first.end(), other.begin(), other.end(), alike)) {
    refuse_bundle("the buckets of the bundle differ in more than the extents of their tensors");
  }
}

// Whether a batch of `shape` may be filled up to `whole`.
bool fills_up(const Shape& shape, const Shape& whole) {
  return shape.size() == whole.size() && !shape.empty() && shape[0] > 0 && shape[0] < whole[0] &&
         std::equal(shape.begin() + 1, shape.end(), whole.begin() + 1);
}

// The batch that a bucket would run with, if it takes the shapes; 0 where no input with a batch has
// a shape.
std::optional<int64_t> batch_taken(const std::vector<TensorSpec>& inputs, const Batch& batch,
                                   const std::vector<std::optional<Shape>>& shapes) {
  int64_t given = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!shapes[i].has_value()) continue;
    const bool has_batch = batch.has(inputs[i].name);
    const bool fills =
        has_batch && batch.refused.empty() && fills_up(*shapes[i], inputs[i].shape);
    if (*shapes[i] != inputs[i].shape && !fills) return std::nullopt;
    if (!has_batch) continue;
    if (given != 0 && given != shapes[i]->front()) return std::nullopt;
    given = shapes[i]->front();
  }
  return given;
}

void set_extent(TensorSpec* spec, size_t axis, int64_t extent) {
  spec->shape[axis] = extent;
  spec->bytes = tensor_bytes(spec->dtype, spec->shape, spec->name);
}

// Gives the tensors that have a batch that of `given` elements; one for which the bucket was
// compiled leaves them as they are.
void set_batch(Chosen* chosen, const Batch& batch, int64_t given) {
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
        refuse_bundle(output.name + " has fewer elements than the batch");
      }
      set_extent(&spec, output.axis, given * output.factor);
    }
  }
}

[[noreturn]] void refuse_shapes(const std::vector<Bucket>& buckets, const Batch& batch,
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
  throw Failure(ADRENOC_BAD_ARGUMENT, message);
}

}  // namespace

bool Batch::has(const std::string& input) const {
  return std::find(inputs.begin(), inputs.end(), input) != inputs.end();
}

BucketList read_buckets(std::string_view text) {
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
    refuse_bundle(std::string(kBucketsFile) + " lists " + std::to_string(list.folders.size()) +
                  " buckets");
  }
  list.batch = read_batch(json.at("batch"));
  return list;
}

// A state has one memory, whichever bucket runs.
void check_states(const std::vector<Bucket>& buckets) {
  std::map<std::string, const TensorSpec*> held;
  for (const Bucket& bucket : buckets) {
    const std::vector<std::string>& states = bucket.manifest.states;
    for (const TensorSpec& spec : bucket.manifest.inputs) {
      if (std::find(states.begin(), states.end(), spec.name) == states.end()) continue;
      const TensorSpec& known = *held.emplace(spec.name, &spec).first->second;
      if (known.shape != spec.shape || known.dtype != spec.dtype) {
        refuse_bundle("the state `" + spec.name + "` has not one form in all signatures");
      }
    }
  }
}

void check_signatures(const std::vector<Bucket>& buckets, const Batch& batch) {
  std::set<std::string> names;
  for (const Bucket& bucket : buckets) {
    if (bucket.signature.empty() || !names.insert(bucket.signature).second) {
      refuse_bundle(std::string(kBucketsFile) + " has not one name for each signature");
    }
    if (!batch.inputs.empty() || !batch.outputs.empty()) {
      refuse_bundle("the signatures of the bundle have a batch");
    }
  }
  check_states(buckets);
}

void check_alike(const std::vector<Bucket>& buckets, const Batch& batch) {
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
    if (batch.has(spec.name) && spec.shape.empty()) refuse_bundle(spec.name + " has no batch");
  }
  for (const BatchOutput& output : batch.outputs) {
    const auto of_name = [&](const TensorSpec& spec) { return spec.name == output.name; };
    const auto spec = std::find_if(first.outputs.begin(), first.outputs.end(), of_name);
    if (spec == first.outputs.end() || output.axis >= spec->shape.size() || output.factor < 1) {
      refuse_bundle(std::string(kBucketsFile) + " tells what no output `" + output.name + "` can have");
    }
  }
}

Chosen whole_bucket(const std::vector<Bucket>& buckets, size_t index) {
  const Manifest& manifest = buckets[index].manifest;
  return {index, manifest.inputs, manifest.outputs};
}

Chosen choose_bucket(const std::vector<Bucket>& buckets, const Batch& batch,
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

size_t find_signature(const std::vector<Bucket>& buckets, const std::string& name) {
  std::string listed;
  for (size_t index = buckets.size(); index-- > 0;) {
    const std::string& signature = buckets[index].signature;
    if (signature.empty()) break;
    if (signature == name) return index;
    listed += (listed.empty() ? "" : ", ") + signature;
  }
  throw Failure(ADRENOC_BAD_ARGUMENT,
                listed.empty() ? "the bundle holds one call, and no signatures to choose from"
                               : "no signature is called " + name + "; the bundle has " + listed);
}

}  // namespace adrenoc_runtime
