// What a bundle has to compute: inputs that anybody can draw again, and numbers of what comes of
// them, by the reference.  `adrenoc prove` writes it, as proof.json (adrenoc/lab/prove/proof.py).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/failure.h"
#include "base/json.h"
#include "base/utf8.h"
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

constexpr int64_t kProofVersion = 1;
constexpr const char* kProofFile = "proof.json";

// Throws Failure (bad bundle), with the place, for a dtype whose numbers are not known here.
inline const Dtype& dtype_of(const std::string& name, const std::string& where) {
  const Dtype* const known = find_dtype(name);
  if (known != nullptr && known->read != nullptr) return *known;
  refuse_bundle({where, " is of the dtype ", name, ", whose numbers are not known"});
}

inline DrawnInput read_input(const Json& json, const TensorSpec& spec) {
  DrawnInput input{json.at("seed").count(), json.at("low").integer(), json.at("count").count(),
                   json.at("step").number()};
  if (input.count == 0) refuse_bundle({json.where(), " has a count of 0"});
  (void)dtype_of(spec.dtype, json.where());
  return input;
}

inline ProvenOutput read_output(const Json& json, const std::vector<TensorSpec>& specs) {
  const auto place = place_of(specs, json.at("name").text());
  if (!place) refuse_bundle({json.at("name").where(), " is no output of the model"});
  ProvenOutput output{
      *place, json.at("part").text(),      json.at("first").count(),      json.at("stride").count(),
      {},     json.at("allowed").number(), json.at("may_differ").number()};
  for (const Json& value : json.at("values").list()) {
    output.values.push_back(value.is_null() ? std::nullopt : std::make_optional(value.number()));
  }
  const TensorSpec& spec = specs[output.index];
  const uint64_t elements = spec.bytes / dtype_of(spec.dtype, json.where()).bytes;
  const uint64_t steps = output.values.empty() ? 0 : output.values.size() - 1;
  // Divided, where a product might not fit.
  const bool fits =
      output.values.empty() || (output.first < elements && output.stride != 0 &&
                                steps <= (elements - 1 - output.first) / output.stride);
  if (!fits)
    refuse_bundle({json.where(), " has values beyond the output's ", elements, " elements"});
  return output;
}

inline Trial read_trial(const Json& json, const std::vector<Bucket>& buckets) {
  Trial trial;
  trial.bucket = json.at("bucket").count();
  if (trial.bucket >= buckets.size()) {
    refuse_bundle(
        {json.where(), " is for bucket ", trial.bucket, "; the bundle has ", buckets.size()});
  }
  const Manifest& manifest = buckets[trial.bucket].manifest;
  const Json::List& inputs = json.at("inputs").list();
  if (inputs.size() != manifest.inputs.size()) {
    refuse_bundle(
        {json.where(), " has ", inputs.size(), " inputs, the model ", manifest.inputs.size()});
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    trial.inputs.push_back(read_input(inputs[i], manifest.inputs[i]));
  }
  for (const Json& output : json.at("outputs").list()) {
    trial.outputs.push_back(read_output(output, manifest.outputs));
  }
  return trial;
}

// Throws Failure (bad bundle) where the text is no proof of a bundle with these buckets.
[[nodiscard]] inline std::vector<Trial> read_proof(std::string_view text,
                                                   const std::vector<Bucket>& buckets) {
  const Json json = Json::parse(text, kProofFile);
  const int64_t version = json.at("schema_version").integer();
  if (version != kProofVersion) {
    refuse_bundle(
        {kProofFile, " has schema version ", version, "; this runtime reads ", kProofVersion});
  }
  std::vector<Trial> trials;
  for (const Json& trial : json.at("trials").list()) trials.push_back(read_trial(trial, buckets));
  if (trials.empty()) refuse_bundle({kProofFile, " proves nothing"});
  return trials;
}

// The `index`-th of these numbers, by splitmix64 (Steele, Lea and Flood, 2014).
inline uint64_t random_word(uint64_t seed, uint64_t index) {
  uint64_t word = seed + (index + 1) * 0x9E3779B97F4A7C15;
  word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9;
  word = (word ^ word >> 27) * 0x94D049BB133111EB;
  return word ^ word >> 31;
}

// The bytes of an input.  Another `turn` gives other numbers; the proof's are those of turn 0.
[[nodiscard]] inline std::vector<char> draw(const DrawnInput& input, const TensorSpec& spec,
                                            uint64_t turn) {
  std::vector<char> bytes(spec.bytes);
  bytes.reserve(1);  // an empty one has an address, too
  const Dtype& dtype = dtype_of(spec.dtype, spec.name);
  for (uint64_t i = 0; i < spec.bytes / dtype.bytes; ++i) {
    const uint64_t word = random_word(input.seed + turn, i) % input.count;
    const double whole = static_cast<double>(input.low) + static_cast<double>(word);
    dtype.write(whole * input.step, bytes.data() + i * dtype.bytes);
  }
  return bytes;
}

// In short, for messages.
inline std::string to_text(double number) { return number_text("%.6g", number); }

inline std::string place_of(const TensorSpec& spec, uint64_t element) {
  std::string text;
  for (auto extent = spec.shape.rbegin(); extent != spec.shape.rend(); ++extent) {
    const auto whole = static_cast<uint64_t>(*extent);
    text = std::to_string(element % whole) + (text.empty() ? "" : ", ") + text;
    element /= whole;
  }
  return "element [" + text + "]";
}

// What is wrong with the bytes of an output: "element [0, 3, 1, 1] is 0.25, expected 0.5 ...";
// "" where nothing is.
[[nodiscard]] inline std::string find_wrong(const ProvenOutput& expected, const TensorSpec& spec,
                                            const std::vector<char>& seen) {
  const Dtype& dtype = dtype_of(spec.dtype, spec.name);
  size_t compared = 0;
  size_t off = 0;
  std::string first;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    if (!expected.values[i].has_value()) continue;
    ++compared;
    const uint64_t element = expected.first + i * expected.stride;
    const double value = dtype.number_at(element, seen.data());
    // Not "more than allowed": NaN is wrong, too.
    if (std::fabs(value - *expected.values[i]) <= expected.allowed) continue;
    ++off;
    if (!first.empty()) continue;
    first = place_of(spec, element) + " is " + to_text(value) + ", expected " +
            to_text(*expected.values[i]) + " within " + to_text(expected.allowed);
  }
  if (static_cast<double>(off) <= expected.may_differ * static_cast<double>(compared)) return "";
  return first + "; " + std::to_string(off) + " of " + std::to_string(compared) + " are off";
}

// The first element of which two runs gave other bits, in the same words; "" where there is none.
[[nodiscard]] inline std::string find_unsteady(const TensorSpec& spec,
                                               const std::vector<char>& before,
                                               const std::vector<char>& after) {
  const auto differing = std::mismatch(before.begin(), before.end(), after.begin(), after.end());
  if (differing.first == before.end()) return "";
  const Dtype& dtype = dtype_of(spec.dtype, spec.name);
  const uint64_t element = static_cast<uint64_t>(differing.first - before.begin()) / dtype.bytes;
  return place_of(spec, element) + " is " + to_text(dtype.number_at(element, after.data())) +
         " in a later run, and was " + to_text(dtype.number_at(element, before.data())) +
         " in the first";
}

}  // namespace adrenoc_runtime
