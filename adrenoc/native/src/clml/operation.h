// A node of the graph as an operator of the library, and how its operands have to lie.
#pragma once

#include <array>
#include <vector>

#include "clml/backend.h"
#include "clml/graph.h"

namespace adrenoc_runtime::clml {

// How an operator takes a tensor: in the library's own layout, or as rows in memory (`linear`)
// that it is told to see as these dims in this layout.
struct Form {
  bool linear = false;
  std::array<uint32_t, 4> dims = {1, 1, 1, 1};
  Layout layout = Layout::kOptimal;

  [[nodiscard]] bool operator==(const Form& other) const {
    return linear == other.linear && dims == other.dims && layout == other.layout;
  }
};

struct Lowered {
  Operation operation;
  std::vector<Form> inputs;
  Form output;
  Arithmetic arithmetic = Arithmetic::kFloat;
};

// Throws ValueError for a node that is damaged, or that nothing here stands for.
[[nodiscard]] Lowered lower_node(const Graph& graph, const GraphNode& node);

}  // namespace adrenoc_runtime::clml
