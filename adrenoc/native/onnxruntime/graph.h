// Reads onnxruntime's graphs, and what a bundle says of itself before it is loaded.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "adrenoc.h"
#include "base/json.h"
#include "ort.h"

namespace adrenoc_ep {

using adrenoc_runtime::Json;

struct Node {
  const OrtNode* handle;
  std::string domain;
  std::string op;
  std::vector<std::string> inputs;  // "" for one that is left out
  std::vector<std::string> outputs;
};

template <typename Owner>
using Count = OrtStatus* (*)(const Owner*, size_t*);
template <typename Owner, typename Item>
using List = OrtStatus* (*)(const Owner*, const Item**, size_t);

template <typename Item, typename Owner>
std::vector<const Item*> list(const Owner* owner, Count<Owner> count, List<Owner, Item> items) {
  size_t found = 0;
  check(count(owner, &found));
  std::vector<const Item*> listed(found);
  check(items(owner, listed.data(), found));
  return listed;
}

inline std::vector<std::string> names_of(const std::vector<const OrtValueInfo*>& values) {
  std::vector<std::string> names;
  for (const OrtValueInfo* value : values) {
    const char* name = "";
    if (value != nullptr) check(api().GetValueInfoName(value, &name));
    names.emplace_back(name);
  }
  return names;
}

[[nodiscard]] inline Node read_node(const OrtNode* handle) {
  Node node{handle, {}, {}, {}, {}};
  const char* text = nullptr;
  check(api().Node_GetDomain(handle, &text));
  node.domain = text;
  check(api().Node_GetOperatorType(handle, &text));
  node.op = text;
  node.inputs = names_of(list<OrtValueInfo>(handle, api().Node_GetNumInputs, api().Node_GetInputs));
  node.outputs =
      names_of(list<OrtValueInfo>(handle, api().Node_GetNumOutputs, api().Node_GetOutputs));
  return node;
}

[[nodiscard]] inline std::vector<Node> read_nodes(const OrtGraph* graph) {
  std::vector<Node> nodes;
  for (const OrtNode* node : list<OrtNode>(graph, api().Graph_GetNumNodes, api().Graph_GetNodes)) {
    nodes.push_back(read_node(node));
  }
  return nodes;
}

[[nodiscard]] inline bool is_subgraph(const OrtGraph* graph) {
  const OrtNode* parent = nullptr;
  check(api().Graph_GetParentNode(graph, &parent));
  return parent != nullptr;
}

// The model's file; "" where it came from memory.
[[nodiscard]] inline std::string model_path(const OrtGraph* graph) {
  const char* path = nullptr;
  check(api().Graph_GetModelPath(graph, &path));
  return path == nullptr ? "" : path;
}

// 1.23 gives an error for an attribute that is not there, later ones null.
inline const OrtOpAttr* find_attribute(const Node& node, const char* name) {
  const OrtOpAttr* found = nullptr;
  OrtStatus* status = api().Node_GetAttributeByName(node.handle, name, &found);
  if (status == nullptr) return found;
  api().ReleaseStatus(status);
  return nullptr;
}

// Nothing where the node has no such attribute.
[[nodiscard]] inline std::optional<std::string> text_attribute(const Node& node, const char* name) {
  const OrtOpAttr* attribute = find_attribute(node, name);
  if (attribute == nullptr) return std::nullopt;
  // The first call tells the size, by an error.
  size_t bytes = 0;
  OrtStatus* status = api().ReadOpAttr(attribute, ORT_OP_ATTR_STRING, nullptr, 0, &bytes);
  if (status != nullptr) api().ReleaseStatus(status);
  std::string text(bytes, '\0');
  if (bytes == 0) return text;
  check(api().ReadOpAttr(attribute, ORT_OP_ATTR_STRING, text.data(), bytes, &bytes));
  text.resize(strnlen(text.data(), bytes));
  return text;
}

[[nodiscard]] inline std::optional<int64_t> integer_attribute(const Node& node, const char* name) {
  const OrtOpAttr* attribute = find_attribute(node, name);
  if (attribute == nullptr) return std::nullopt;
  int64_t value = 0;
  size_t bytes = 0;
  check(api().ReadOpAttr(attribute, ORT_OP_ATTR_INT, &value, sizeof(value), &bytes));
  return value;
}

// "a.adrenoc;b.adrenoc" as paths.
[[nodiscard]] inline std::vector<std::string> split_paths(const std::string& text) {
  std::vector<std::string> paths;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find(';', start), text.size());
    if (end != start) paths.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return paths;
}

inline Json read_manifest(const std::string& bundle) {
  const char* described = adrenoc_describe(bundle.c_str());
  if (described == nullptr) throw Refusal(ORT_NO_MODEL, adrenoc_last_error());
  return Json::parse(described, bundle).at("manifest");
}

inline std::set<std::string> states_in(const Json& manifest) {
  std::set<std::string> states;
  if (manifest.object().count("states") == 0) return states;
  for (const Json& state : manifest.at("states").list()) states.insert(state.text());
  return states;
}

// The inputs that a bundle keeps from run to run.  Throws Refusal where it cannot be read.
[[nodiscard]] inline std::set<std::string> states_of(const std::string& bundle) {
  return states_in(read_manifest(bundle));
}

constexpr size_t kDigestLetters = 65;  // with the 0 behind them
constexpr const char* kDigest = "file_sha256";

inline std::string missing_of(const Json& tensors, const std::set<std::string>& names) {
  for (const Json& tensor : tensors.list()) {
    const std::string& name = tensor.at("name").text();
    if (names.count(name) == 0) return name;
  }
  return "";
}

inline std::string compare(const Json& manifest, const std::string& model,
                           const std::vector<Node>& nodes) {
  const Json& compiled = manifest.at("model");
  if (compiled.object().count(kDigest) == 0) {
    return "it was compiled from several files, which its manifest has no SHA-256 of: open the "
           "model "
           "that adrenoc compile --onnxruntime writes";
  }
  char digest[kDigestLetters];
  if (adrenoc_file_sha256(model.c_str(), digest) != ADRENOC_OK) return adrenoc_last_error();
  if (compiled.at(kDigest).text() != digest) {
    return "it was compiled from another file than " + model + " (its SHA-256 differs)";
  }
  if (!states_in(manifest).empty()) {
    return "it keeps states, which the model hands out: open the model that adrenoc compile "
           "--onnxruntime writes";
  }
  std::set<std::string> read;
  std::set<std::string> made;
  for (const Node& node : nodes) {
    read.insert(node.inputs.begin(), node.inputs.end());
    made.insert(node.outputs.begin(), node.outputs.end());
  }
  const std::string input = missing_of(manifest.at("inputs"), read);
  if (!input.empty()) return "no node reads its input `" + input + "`";
  const std::string output = missing_of(manifest.at("outputs"), made);
  return output.empty() ? "" : "no node makes its output `" + output + "`";
}

// Why a bundle does not compute these nodes, which are all of the model in a file; "" where it
// does: it was compiled from that very file, and the nodes read and make all of its tensors.
[[nodiscard]] inline std::string why_not(const std::string& bundle, const std::string& model,
                                         const std::vector<Node>& nodes) {
  if (model.empty()) return "the model came from memory, and has no file to compare";
  try {
    return compare(read_manifest(bundle), model, nodes);
  } catch (const std::runtime_error& error) {  // of its manifest
    return error.what();
  }
}

}  // namespace adrenoc_ep
