// The JSON graph of a region, as TVM's code generators for JSON runtimes write it, and its nodes as
// operators of the library.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/json.h"
#include "clml/backend.h"

namespace adrenoc_runtime::clml {

constexpr int64_t kUnknownExtent = -1;  // one that a run alone tells

struct GraphNode {
  enum class Kind { kInput, kConst, kKernel };
  Kind kind = Kind::kInput;
  std::string name;
  std::vector<size_t> inputs;  // indices of nodes; each has one output
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;
  Json attrs;  // each question throws Failure where it is missing or of another type

  [[nodiscard]] const Json& attr(const char* key) const { return attrs.at(key); }
  [[nodiscard]] bool has(const char* key) const { return attrs.object().count(key) != 0; }
  [[nodiscard]] std::vector<int64_t> integers(const char* key, size_t count) const;
  [[nodiscard]] std::vector<std::string> texts(const char* key, size_t count) const;

  [[nodiscard]] bool is_static() const {
    return std::find(shape.begin(), shape.end(), kUnknownExtent) == shape.end();
  }
  // These are of static shapes.
  [[nodiscard]] size_t elements() const {
    return std::accumulate(shape.begin(), shape.end(), size_t{1}, std::multiplies<size_t>());
  }
  // The shape as n, c, h, w: ranks below four are filled up with ones at the end.
  [[nodiscard]] std::array<uint32_t, 4> dims() const;
  [[nodiscard]] bool ends_with(const std::string& ending) const {
    return name.size() >= ending.size() && name.rfind(ending) == name.size() - ending.size();
  }
};

struct Graph {
  std::vector<GraphNode> nodes;   // in execution order
  std::vector<size_t> inputs;     // nodes of kind kInput, in order
  std::vector<size_t> constants;  // nodes of kind kConst, in order
  std::vector<size_t> outputs;
};

// Throws Failure that names the place where the text is not such a graph.
[[nodiscard]] Graph read_graph(const std::string& text);

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
