#include "clml/graph.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/error.h>

#include <algorithm>
#include <cstring>

namespace adrenoc_runtime::clml {
namespace {

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

constexpr int64_t kMostExtent = 1 << 24;

[[noreturn]] void refuse_graph(const std::string& what) {
  TVM_FFI_THROW(ValueError) << "A CLML graph is damaged: " << what;
  TVM_FFI_UNREACHABLE();
}

template <typename T>
T as(const ffi::Any& value, const std::string& where) {
  const auto found = value.try_cast<T>();
  if (!found.has_value()) refuse_graph(where + " has another type than expected");
  return *found;
}

ffi::Any member(const json::Object& object, const char* key, const std::string& where) {
  const auto found = object.find(ffi::String(key));
  if (found == object.end()) refuse_graph(where + " lacks `" + key + "`");
  return (*found).second;
}

size_t index_at(const json::Array& entry, size_t count, const std::string& where) {
  if (entry.size() < 1) refuse_graph(where + " is empty");
  const auto index = as<int64_t>(entry[0], where);
  if (index < 0 || static_cast<size_t>(index) >= count) {
    refuse_graph(where + " names node " + std::to_string(index) + " of " + std::to_string(count));
  }
  if (entry.size() > 1 && as<int64_t>(entry[1], where) != 0) {
    refuse_graph(where + " names a further output of a node, and nodes have one");
  }
  return static_cast<size_t>(index);
}

GraphNode::Kind kind_of(const std::string& op, const std::string& where) {
  if (op == "input") return GraphNode::Kind::kInput;
  if (op == "const") return GraphNode::Kind::kConst;
  if (op == "kernel") return GraphNode::Kind::kKernel;
  refuse_graph(where + " is a `" + op + "`");
}

DType dtype_named(const std::string& name, const std::string& where) {
  if (name == "float32") return DType::kFloat32;
  if (name == "float16") return DType::kFloat16;
  if (name == "uint32") return DType::kPacked;
  refuse_graph(where + " holds " + name + ", which CLML does not have");
}

GraphNode read_node(const json::Object& object, size_t number) {
  const std::string where = "node " + std::to_string(number);
  GraphNode node;
  node.kind = kind_of(as<ffi::String>(member(object, "op", where), where), where);
  node.name = as<ffi::String>(member(object, "name", where), where);
  node.attrs = as<json::Object>(member(object, "attrs", where), where);
  const auto shapes = as<json::Array>(member(node.attrs, "shape", where), where);
  const auto dtypes = as<json::Array>(member(node.attrs, "dtype", where), where);
  if (shapes.size() != 1 || dtypes.size() != 1) refuse_graph(where + " has not one output");
  for (const ffi::Any& extent : as<json::Array>(shapes[0], where)) {
    node.shape.push_back(as<int64_t>(extent, where));
    const bool known = node.shape.back() != kUnknownExtent;
    if (known && (node.shape.back() < 1 || node.shape.back() > kMostExtent)) {
      refuse_graph(where + " has the extent " + std::to_string(node.shape.back()));
    }
  }
  if (node.shape.size() > 4) refuse_graph(where + " has a rank above four");
  node.dtype = dtype_named(as<ffi::String>(dtypes[0], where), where);
  const auto inputs = object.find(ffi::String("inputs"));
  if (inputs != object.end()) {
    for (const ffi::Any& entry : as<json::Array>((*inputs).second, where)) {
      node.inputs.push_back(index_at(as<json::Array>(entry, where), number, where));
    }
  }
  if (node.kind == GraphNode::Kind::kKernel && node.inputs.empty()) {
    refuse_graph(where + " reads nothing");
  }
  return node;
}

}  // namespace

bool GraphNode::has(const char* key) const { return attrs.find(ffi::String(key)) != attrs.end(); }

int64_t GraphNode::integer(const char* key) const {
  return as<int64_t>(member(attrs, key, name), name + "." + key);
}

double GraphNode::number(const char* key) const {
  return as<double>(member(attrs, key, name), name + "." + key);
}

std::string GraphNode::text(const char* key) const {
  return as<ffi::String>(member(attrs, key, name), name + "." + key);
}

std::vector<int64_t> GraphNode::integers(const char* key, size_t count) const {
  const std::string where = name + "." + key;
  std::vector<int64_t> values;
  for (const ffi::Any& value : as<json::Array>(member(attrs, key, name), where)) {
    values.push_back(as<int64_t>(value, where));
    if (values.back() < 0 || values.back() > kMostExtent) refuse_graph(where + " is out of range");
  }
  if (values.size() != count) refuse_graph(where + " has not " + std::to_string(count) + " values");
  return values;
}

std::vector<std::string> GraphNode::texts(const char* key, size_t count) const {
  const std::string where = name + "." + key;
  std::vector<std::string> values;
  for (const ffi::Any& value : as<json::Array>(member(attrs, key, name), where)) {
    values.push_back(as<ffi::String>(value, where));
  }
  if (values.size() != count) refuse_graph(where + " has not " + std::to_string(count) + " values");
  return values;
}

bool GraphNode::is_static() const {
  return std::find(shape.begin(), shape.end(), kUnknownExtent) == shape.end();
}

size_t GraphNode::elements() const {
  size_t count = 1;
  for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
  return count;
}

std::array<uint32_t, 4> GraphNode::dims() const {
  std::array<uint32_t, 4> result = {1, 1, 1, 1};
  for (size_t i = 0; i < shape.size(); ++i) result[i] = static_cast<uint32_t>(shape[i]);
  return result;
}

bool GraphNode::ends_with(const char* ending) const {
  const size_t length = std::strlen(ending);
  return name.size() >= length && name.compare(name.size() - length, length, ending) == 0;
}

Graph read_graph(const std::string& text) {
  ffi::String error;
  const json::Value whole = json::Parse(ffi::String(text), &error);
  if (!error.empty()) refuse_graph(std::string(error));
  const auto object = as<json::Object>(whole, "the graph");
  Graph graph;
  for (const ffi::Any& entry : as<json::Array>(member(object, "nodes", "the graph"), "nodes")) {
    const size_t number = graph.nodes.size();
    graph.nodes.push_back(read_node(as<json::Object>(entry, "nodes"), number));
    const auto kind = graph.nodes.back().kind;
    if (kind == GraphNode::Kind::kInput) graph.inputs.push_back(number);
    if (kind == GraphNode::Kind::kConst) graph.constants.push_back(number);
  }
  for (const ffi::Any& entry : as<json::Array>(member(object, "heads", "the graph"), "heads")) {
    const size_t index = index_at(as<json::Array>(entry, "heads"), graph.nodes.size(), "heads");
    if (graph.nodes[index].kind != GraphNode::Kind::kKernel) {
      refuse_graph("an output is not the result of an operator");
    }
    graph.outputs.push_back(index);
  }
  if (graph.outputs.empty()) refuse_graph("it has no output");
  return graph;
}

}  // namespace adrenoc_runtime::clml
