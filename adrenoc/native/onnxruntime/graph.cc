#include "graph.h"

#include <cstring>

namespace adrenoc_ep {
namespace {

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

std::vector<std::string> names_of(const std::vector<const OrtValueInfo*>& values) {
  std::vector<std::string> names;
  for (const OrtValueInfo* value : values) {
    const char* name = "";
    if (value != nullptr) check(api().GetValueInfoName(value, &name));
    names.emplace_back(name);
  }
  return names;
}

// 1.23 gives an error for an attribute that is not there, later ones null.
const OrtOpAttr* find_attribute(const Node& node, const char* name) {
  const OrtOpAttr* found = nullptr;
  OrtStatus* status = api().Node_GetAttributeByName(node.handle, name, &found);
  if (status == nullptr) return found;
  api().ReleaseStatus(status);
  return nullptr;
}

}  // namespace

Node read_node(const OrtNode* handle) {
  Node node{handle, {}, {}, {}, {}};
  const char* text = nullptr;
  check(api().Node_GetDomain(handle, &text));
  node.domain = text;
  check(api().Node_GetOperatorType(handle, &text));
  node.op = text;
  node.inputs = names_of(
      list<OrtValueInfo>(handle, api().Node_GetNumInputs, api().Node_GetInputs));
  node.outputs = names_of(
      list<OrtValueInfo>(handle, api().Node_GetNumOutputs, api().Node_GetOutputs));
  return node;
}

std::vector<Node> read_nodes(const OrtGraph* graph) {
  std::vector<Node> nodes;
  for (const OrtNode* node :
       list<OrtNode>(graph, api().Graph_GetNumNodes, api().Graph_GetNodes)) {
    nodes.push_back(read_node(node));
  }
  return nodes;
}

bool is_subgraph(const OrtGraph* graph) {
  const OrtNode* parent = nullptr;
  check(api().Graph_GetParentNode(graph, &parent));
  return parent != nullptr;
}

std::string model_path(const OrtGraph* graph) {
  const char* path = nullptr;
  check(api().Graph_GetModelPath(graph, &path));
  return path == nullptr ? "" : path;
}

std::optional<std::string> text_attribute(const Node& node, const char* name) {
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

std::optional<int64_t> integer_attribute(const Node& node, const char* name) {
  const OrtOpAttr* attribute = find_attribute(node, name);
  if (attribute == nullptr) return std::nullopt;
  int64_t value = 0;
  size_t bytes = 0;
  check(api().ReadOpAttr(attribute, ORT_OP_ATTR_INT, &value, sizeof(value), &bytes));
  return value;
}

}  // namespace adrenoc_ep
