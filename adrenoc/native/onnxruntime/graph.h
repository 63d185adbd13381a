// Reads onnxruntime's graphs, and what a bundle says of itself before it is loaded.
#pragma once

#include <optional>
#include <set>
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

// "a.adrenoc;b.adrenoc" as paths.
[[nodiscard]] std::vector<std::string> split_paths(const std::string& text);

// The inputs that a bundle keeps from run to run.  Throws Refusal where it cannot be read.
[[nodiscard]] std::set<std::string> states_of(const std::string& bundle);

// Why a bundle does not compute these nodes, which are all of the model in a file; "" where it
// does: it was compiled from that very file, and the nodes read and make all of its tensors.
[[nodiscard]] std::string why_not(const std::string& bundle, const std::string& model,
                                  const std::vector<Node>& nodes);

}  // namespace adrenoc_ep
