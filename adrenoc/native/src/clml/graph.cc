#include "clml/graph.h"

#include "base/failure.h"

namespace adrenoc_runtime::clml {
namespace {

constexpr int64_t kMostExtent = 1 << 24;

size_t index_of(const Json& entry, size_t count) {
  const Json::List& parts = entry.list();
  if (parts.empty()) refuse_bundle(entry.where() + " is empty");
  const int64_t index = parts[0].integer();
  if (index < 0 || static_cast<size_t>(index) >= count) {
    refuse_bundle(entry.where() + " names node " + std::to_string(index) + " of " +
                  std::to_string(count));
  }
  if (parts.size() > 1 && parts[1].integer() != 0) {
    refuse_bundle(entry.where() + " names a further output of a node, and nodes have one");
  }
  return static_cast<size_t>(index);
}

GraphNode::Kind kind_of(const Json& op) {
  if (op.text() == "input") return GraphNode::Kind::kInput;
  if (op.text() == "const") return GraphNode::Kind::kConst;
  if (op.text() == "kernel") return GraphNode::Kind::kKernel;
  refuse_bundle(op.where() + " is a `" + op.text() + "`");
}

DType dtype_named(const Json& dtype) {
  if (dtype.text() == "float32") return DType::kFloat32;
  if (dtype.text() == "float16") return DType::kFloat16;
  if (dtype.text() == "uint32") return DType::kPacked;
  refuse_bundle(dtype.where() + " holds " + dtype.text() + ", which CLML does not have");
}

GraphNode read_node(const Json& json, size_t number) {
  GraphNode node;
  node.kind = kind_of(json.at("op"));
  node.name = json.at("name").text();
  node.attrs = json.at("attrs");
  const Json::List& shapes = node.attrs.at("shape").list();
  const Json::List& dtypes = node.attrs.at("dtype").list();
  if (shapes.size() != 1 || dtypes.size() != 1) refuse_bundle(json.where() + " has not one output");
  for (const Json& extent : shapes[0].list()) {
    node.shape.push_back(extent.integer());
    const bool known = node.shape.back() != kUnknownExtent;
    if (known && (node.shape.back() < 1 || node.shape.back() > kMostExtent)) {
      refuse_bundle(extent.where() + " has the extent " + std::to_string(node.shape.back()));
    }
  }
  if (node.shape.size() > 4) refuse_bundle(json.where() + " has a rank above four");
  node.dtype = dtype_named(dtypes[0]);
  if (json.object().count("inputs") != 0) {
    for (const Json& entry : json.at("inputs").list()) {
      node.inputs.push_back(index_of(entry, number));
    }
  }
  if (node.kind == GraphNode::Kind::kKernel && node.inputs.empty()) {
    refuse_bundle(json.where() + " reads nothing");
  }
  return node;
}

const Json::List& values_of(const Json& attribute, size_t count) {
  const Json::List& values = attribute.list();
  if (values.size() == count) return values;
  refuse_bundle(attribute.where() + " has not " + std::to_string(count) + " values");
}

}  // namespace

std::vector<int64_t> GraphNode::integers(const char* key, size_t count) const {
  std::vector<int64_t> values;
  for (const Json& value : values_of(attrs.at(key), count)) {
    values.push_back(value.integer());
    if (values.back() < 0 || values.back() > kMostExtent) {
      refuse_bundle(value.where() + " is out of range");
    }
  }
  return values;
}

std::vector<std::string> GraphNode::texts(const char* key, size_t count) const {
  std::vector<std::string> values;
  for (const Json& value : values_of(attrs.at(key), count)) values.push_back(value.text());
  return values;
}

std::array<uint32_t, 4> GraphNode::dims() const {
  std::array<uint32_t, 4> result = {1, 1, 1, 1};
  for (size_t i = 0; i < shape.size(); ++i) result[i] = static_cast<uint32_t>(shape[i]);
  return result;
}

Graph read_graph(const std::string& text) {
  const Json json = Json::parse(text, "the CLML graph");
  Graph graph;
  for (const Json& entry : json.at("nodes").list()) {
    const size_t number = graph.nodes.size();
    graph.nodes.push_back(read_node(entry, number));
    const auto kind = graph.nodes.back().kind;
    if (kind == GraphNode::Kind::kInput) graph.inputs.push_back(number);
    if (kind == GraphNode::Kind::kConst) graph.constants.push_back(number);
  }
  for (const Json& entry : json.at("heads").list()) {
    graph.outputs.push_back(index_of(entry, graph.nodes.size()));
    if (graph.nodes[graph.outputs.back()].kind != GraphNode::Kind::kKernel) {
      refuse_bundle("the CLML graph: an output is not the result of an operator");
    }
  }
  if (graph.outputs.empty()) refuse_bundle("the CLML graph: it has no output");
  return graph;
}

}  // namespace adrenoc_runtime::clml
