// Reads onnxruntime's graphs: names, attributes and the model's path.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ort.h"

namespace adrenoc_ep {

struct Node {
  const OrtNode* handle;
  std::string domain;
  std::string op;
  std::vector<std::string> inputs;  // "" for one that is left out
  std::vector<std::string> outputs;
};

[[nodiscard]] Node read_node(const OrtNode* handle);
[[nodiscard]] std::vector<Node> read_nodes(const OrtGraph* graph);
[[nodiscard]] bool is_subgraph(const OrtGraph* graph);
// The model's file; "" where it came from memory.
[[nodiscard]] std::string model_path(const OrtGraph* graph);

// Nothing where the node has no such attribute.
[[nodiscard]] std::optional<std::string> text_attribute(const Node& node, const char* name);
[[nodiscard]] std::optional<int64_t> integer_attribute(const Node& node, const char* name);

}  // namespace adrenoc_ep
