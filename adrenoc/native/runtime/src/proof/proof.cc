#include "proof/proof.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/failure.h"
#include "base/half.h"
#include "base/json.h"
#include "base/utf8.h"

namespace adrenoc_runtime {

namespace {

// Single numbers of dense tensors, by the name of their dtype.
struct NumberType {
  const char* name;
  uint64_t bytes;
  double (*read)(const char* at);
  void (*write)(double number, char* at);

  [[nodiscard]] double number_at(uint64_t index, const char* data) const {
    return read(data + index * bytes);
  }
};

template <typename Element>
double read_as(const char* at) {
  Element element;
  std::memcpy(&element, at, sizeof(element));
  return static_cast<double>(element);
}

template <>
double read_as<Half>(const char* at) {
  Half element;
  std::memcpy(&element, at, sizeof(element));
  return number_of(element);
}

template <typename Element>
void write_as(double number, char* at) {
  const auto element = static_cast<Element>(number);
  std::memcpy(at, &element, sizeof(element));
}

template <>
void write_as<Half>(double number, char* at) {
  const Half element = nearest_half(number);
  std::memcpy(at, &element, sizeof(element));
}

template <typename Element>
constexpr NumberType make_dtype(const char* name) {
  return {name, sizeof(Element), read_as<Element>, write_as<Element>};
}

constexpr NumberType kDtypes[] = {
    make_dtype<float>("float32"),   make_dtype<Half>("float16"),    make_dtype<double>("float64"),
    make_dtype<int8_t>("int8"),     make_dtype<int16_t>("int16"),   make_dtype<int32_t>("int32"),
    make_dtype<int64_t>("int64"),   make_dtype<uint8_t>("uint8"),   make_dtype<uint16_t>("uint16"),
    make_dtype<uint32_t>("uint32"), make_dtype<uint64_t>("uint64"), make_dtype<uint8_t>("bool"),
};

// Throws Failure (bad bundle), with the place, for a dtype whose numbers are not known here.
const NumberType& dtype_of(const std::string& name, const std::string& where) {
  for (const NumberType& dtype : kDtypes) {
    if (name == dtype.name) return dtype;
  }
  refuse_bundle({where, " is of the dtype ", name, ", whose numbers are not known"});
}

// In short, for messages.
std::string to_text(double number) { return number_text("%.6g", number); }

constexpr int64_t kProofVersion = 1;
constexpr const char* kProofFile = "proof.json";

DrawnInput read_input(const Json& json, const TensorSpec& spec) {
  DrawnInput input{json.at("seed").count(), json.at("low").integer(), json.at("count").count(),
                   json.at("step").number()};
  if (input.count == 0) refuse_bundle({json.where(), " has a count of 0"});
  (void)dtype_of(spec.dtype, json.where());
  return input;
}

size_t find_output(const std::vector<TensorSpec>& specs, const Json& name) {
  const auto found = std::find_if(specs.begin(), specs.end(),
                                  [&](const TensorSpec& spec) { return spec.name == name.text(); });
  if (found == specs.end()) refuse_bundle({name.where(), " is no output of the model"});
  return static_cast<size_t>(found - specs.begin());
}

ProvenOutput read_output(const Json& json, const std::vector<TensorSpec>& specs) {
  ProvenOutput output{find_output(specs, json.at("name")),
                      json.at("part").text(),
                      json.at("first").count(),
                      json.at("stride").count(),
                      {},
                      json.at("allowed").number(),
                      json.at("may_differ").number()};
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

Trial read_trial(const Json& json, const std::vector<Bucket>& buckets) {
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

// The `index`-th of these numbers, by splitmix64 (Steele, Lea and Flood, 2014).
uint64_t random_word(uint64_t seed, uint64_t index) {
  uint64_t word = seed + (index + 1) * 0x9E3779B97F4A7C15;
  word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9;
  word = (word ^ word >> 27) * 0x94D049BB133111EB;
  return word ^ word >> 31;
}

std::string place_of(const TensorSpec& spec, uint64_t element) {
  std::string text;
  for (auto extent = spec.shape.rbegin(); extent != spec.shape.rend(); ++extent) {
    const auto whole = static_cast<uint64_t>(*extent);
    text = std::to_string(element % whole) + (text.empty() ? "" : ", ") + text;
    element /= whole;
  }
  return "element [" + text + "]";
}

}  // namespace

std::vector<Trial> read_proof(std::string_view text, const std::vector<Bucket>& buckets) {
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

std::vector<char> draw(const DrawnInput& input, const TensorSpec& spec, uint64_t turn) {
  std::vector<char> bytes(spec.bytes);
  bytes.reserve(1);  // an empty one has an address, too
  const NumberType& dtype = dtype_of(spec.dtype, spec.name);
  for (uint64_t i = 0; i < spec.bytes / dtype.bytes; ++i) {
    const uint64_t word = random_word(input.seed + turn, i) % input.count;
    const double whole = static_cast<double>(input.low) + static_cast<double>(word);
    dtype.write(whole * input.step, bytes.data() + i * dtype.bytes);
  }
  return bytes;
}

std::string find_wrong(const ProvenOutput& expected, const TensorSpec& spec,
                       const std::vector<char>& seen) {
  const NumberType& dtype = dtype_of(spec.dtype, spec.name);
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

std::string find_unsteady(const TensorSpec& spec, const std::vector<char>& before,
                          const std::vector<char>& after) {
  const auto differing = std::mismatch(before.begin(), before.end(), after.begin(), after.end());
  if (differing.first == before.end()) return "";
  const NumberType& dtype = dtype_of(spec.dtype, spec.name);
  const uint64_t element = static_cast<uint64_t>(differing.first - before.begin()) / dtype.bytes;
  return place_of(spec, element) + " is " + to_text(dtype.number_at(element, after.data())) +
         " in a later run, and was " + to_text(dtype.number_at(element, before.data())) +
         " in the first";
}

}  // namespace adrenoc_runtime
