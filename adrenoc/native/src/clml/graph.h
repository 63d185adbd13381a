// The JSON graph of a region, as TVM's code generators for JSON runtimes write it, and its nodes as
// operators of the library.
#pragma once

#include <tvm/ffi/error.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/failure.h"
#include "base/json.h"
#include "clml/backend.h"

namespace adrenoc_runtime::clml {

constexpr int64_t kUnknownExtent = -1;  // one that a run alone tells

constexpr int64_t kMostExtent = 1 << 24;

inline const Json::List& values_of(const Json& attribute, size_t count) {
  const Json::List& values = attribute.list();
  if (values.size() == count) return values;
  refuse_bundle({attribute.where(), " has not ", count, " values"});
}

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
  [[nodiscard]] std::vector<int64_t> integers(const char* key, size_t count) const {
    std::vector<int64_t> values;
    for (const Json& value : values_of(attrs.at(key), count)) {
      values.push_back(value.integer());
      if (values.back() < 0 || values.back() > kMostExtent) {
        refuse_bundle({value.where(), " is out of range"});
      }
    }
    return values;
  }
  [[nodiscard]] std::vector<std::string> texts(const char* key, size_t count) const {
    std::vector<std::string> values;
    for (const Json& value : values_of(attrs.at(key), count)) values.push_back(value.text());
    return values;
  }

  [[nodiscard]] bool is_static() const {
    return std::find(shape.begin(), shape.end(), kUnknownExtent) == shape.end();
  }
  // These are of static shapes.
  [[nodiscard]] size_t elements() const {
    return std::accumulate(shape.begin(), shape.end(), size_t{1}, std::multiplies<size_t>());
  }
  // The shape as n, c, h, w: ranks below four are filled up with ones at the end.
  [[nodiscard]] std::array<uint32_t, 4> dims() const {
    std::array<uint32_t, 4> result = {1, 1, 1, 1};
    for (size_t i = 0; i < shape.size(); ++i) result[i] = static_cast<uint32_t>(shape[i]);
    return result;
  }
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

inline size_t index_of(const Json& entry, size_t count) {
  const Json::List& parts = entry.list();
  if (parts.empty()) refuse_bundle({entry.where(), " is empty"});
  const int64_t index = parts[0].integer();
  if (index < 0 || static_cast<size_t>(index) >= count) {
    refuse_bundle({entry.where(), " names node ", index, " of ", count});
  }
  if (parts.size() > 1 && parts[1].integer() != 0) {
    refuse_bundle({entry.where(), " names a further output of a node, and nodes have one"});
  }
  return static_cast<size_t>(index);
}

inline GraphNode::Kind kind_of(const Json& op) {
  if (op.text() == "input") return GraphNode::Kind::kInput;
  if (op.text() == "const") return GraphNode::Kind::kConst;
  if (op.text() == "kernel") return GraphNode::Kind::kKernel;
  refuse_bundle({op.where(), " is a `", op.text(), "`"});
}

inline DType dtype_named(const Json& dtype) {
  if (dtype.text() == "float32") return DType::kFloat32;
  if (dtype.text() == "float16") return DType::kFloat16;
  if (dtype.text() == "uint32") return DType::kPacked;
  refuse_bundle({dtype.where(), " holds ", dtype.text(), ", which CLML does not have"});
}

inline GraphNode read_node(const Json& json, size_t number) {
  GraphNode node;
  node.kind = kind_of(json.at("op"));
  node.name = json.at("name").text();
  node.attrs = json.at("attrs");
  const Json::List& shapes = node.attrs.at("shape").list();
  const Json::List& dtypes = node.attrs.at("dtype").list();
  if (shapes.size() != 1 || dtypes.size() != 1)
    refuse_bundle({json.where(), " has not one output"});
  for (const Json& extent : shapes[0].list()) {
    node.shape.push_back(extent.integer());
    const bool known = node.shape.back() != kUnknownExtent;
    if (known && (node.shape.back() < 1 || node.shape.back() > kMostExtent)) {
      refuse_bundle({extent.where(), " has the extent ", node.shape.back()});
    }
  }
  if (node.shape.size() > 4) refuse_bundle({json.where(), " has a rank above four"});
  node.dtype = dtype_named(dtypes[0]);
  if (json.object().count("inputs") != 0) {
    for (const Json& entry : json.at("inputs").list()) {
      node.inputs.push_back(index_of(entry, number));
    }
  }
  if (node.kind == GraphNode::Kind::kKernel && node.inputs.empty()) {
    refuse_bundle({json.where(), " reads nothing"});
  }
  return node;
}

// Throws Failure that names the place where the text is not such a graph.
[[nodiscard]] inline Graph read_graph(const std::string& text) {
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

[[noreturn]] inline void refuse_node(const GraphNode& node, Phrases what) {
  TVM_FFI_THROW(ValueError) << "A CLML graph is damaged: " << node.name << " " << sentence(what);
  TVM_FFI_UNREACHABLE();
}

inline void expect_inputs(const GraphNode& node, size_t least, size_t most) {
  if (node.inputs.size() < least || node.inputs.size() > most) {
    refuse_node(node, {"reads ", node.inputs.size(), " tensors"});
  }
}

using Dims = std::array<uint32_t, 4>;

inline Form optimal_form(const Dims& dims) { return {false, dims, Layout::kOptimal}; }

// Everything in the library's own layout, each tensor with its own dims.
inline Lowered plain(const Graph& graph, const GraphNode& node, Operation operation) {
  Lowered lowered{std::move(operation), {}, optimal_form(node.dims())};
  for (const size_t input : node.inputs) {
    lowered.inputs.push_back(optimal_form(graph.nodes[input].dims()));
  }
  return lowered;
}

inline Pair pair_of(const std::vector<int64_t>& values, size_t at) {
  return {static_cast<uint32_t>(values[at]), static_cast<uint32_t>(values[at + 1])};
}

inline Activation activation_named(const GraphNode& node) {
  const std::string kind = node.attr("activation_type").text();
  if (kind == "relu") return Activation::kRelu;
  if (kind == "relu6") return Activation::kRelu6;
  refuse_node(node, {"has the unknown activation ", kind});
}

inline const GraphNode& input_of(const Graph& graph, const GraphNode& node, size_t position) {
  if (position >= node.inputs.size()) refuse_node(node, {"lacks its input ", position});
  return graph.nodes[node.inputs[position]];
}

// The vectors of a batch norm lie along the channels.
inline void as_channels(const Graph& graph, const GraphNode& node, size_t first, Lowered* lowered) {
  for (size_t i = first; i < first + 4; ++i) {
    const auto count = static_cast<uint32_t>(input_of(graph, node, i).elements());
    lowered->inputs[i] = optimal_form({1, count, 1, 1});
  }
}

inline Lowered convolution(const Graph& graph, const GraphNode& node, Convolution::Mode mode) {
  expect_inputs(node, 2, 7);
  const size_t count = node.inputs.size();
  if (count == 4 || count == 5) refuse_node(node, {"reads a part of a batch norm"});
  Convolution conv;
  conv.mode = mode;
  const auto padding = node.integers("padding", 4);
  conv.before = pair_of(padding, 0);
  conv.after = pair_of(padding, 2);
  conv.strides = pair_of(node.integers("strides", 2), 0);
  conv.dilation = pair_of(node.integers("dilation", 2), 0);
  conv.has_bias = count == 3 || count == 7;
  if (mode == Convolution::Mode::kFull && node.attr("groups").integer() != 1) {
    refuse_node(node, {"has groups, which CLML does not have"});
  }
  if (node.has("activation_type")) conv.activation = activation_named(node);
  const bool normed = count >= 6;
  if (normed) {
    try {
      conv.epsilon = std::stof(node.texts("batchnorm", 4)[1]);
    } catch (const std::logic_error&) {
      refuse_node(node, {"has an epsilon that is no number"});
    }
  }
  Lowered lowered = plain(graph, node, conv);
  if (normed) as_channels(graph, node, conv.has_bias ? 3 : 2, &lowered);
  return lowered;
}

inline Lowered pooling(const Graph& graph, const GraphNode& node, bool average, bool global) {
  expect_inputs(node, 1, 1);
  Pooling pool;
  pool.average = average;
  if (global) {
    const Dims dims = input_of(graph, node, 0).dims();
    pool.window = {dims[2], dims[3]};
  } else {
    const auto padding = node.integers("padding", 4);
    pool.before = pair_of(padding, 0);
    pool.after = pair_of(padding, 2);
    pool.strides = pair_of(node.integers("strides", 2), 0);
    pool.window = pair_of(node.integers("pool_size", 2), 0);
  }
  return plain(graph, node, pool);
}

inline Form linear_form(const Dims& dims, Layout layout = Layout::kNchw) {
  return {true, dims, layout};
}

// The library's softmax runs along c.  Rows whose last axis is to be normalised are, seen as
// n, h, w, c in memory, just that.
inline Lowered softmax(const GraphNode& node) {
  expect_inputs(node, 1, 1);
  const auto rank = static_cast<int64_t>(node.shape.size());
  const int64_t axis = node.attr("axis").integer();
  const int64_t along = axis < 0 ? axis + rank : axis;
  const Dims dims = node.dims();
  Form form;
  if (along == 1 && (rank == 2 || rank == 4)) {
    form = rank == 2 ? optimal_form(dims) : linear_form(dims);
  } else if (rank == 3 && along == 2) {
    form = linear_form({dims[0], dims[2], 1, dims[1]}, Layout::kNhwc);
  } else if (rank == 4 && along == 3) {
    form = linear_form({dims[0], dims[3], dims[1], dims[2]}, Layout::kNhwc);
  } else {
    refuse_node(node, {"normalises along axis ", axis});
  }
  return {Softmax{}, {form}, form};
}

inline Lowered dense(const Graph& graph, const GraphNode& node) {
  expect_inputs(node, 2, 3);
  const Dims data = input_of(graph, node, 0).dims();
  const Dims weights = input_of(graph, node, 1).dims();
  if (weights[1] != data[1]) refuse_node(node, {"multiplies matrices that do not fit"});
  const Dims turned = {1, 1, weights[0], weights[1]};
  if (node.inputs.size() == 3) {
    if (data[0] != 1) refuse_node(node, {"has a bias and more than one row"});
    Lowered lowered = plain(graph, node, FullyConnected{});
    lowered.inputs[1] = optimal_form(turned);
    return lowered;
  }
  Lowered lowered{Gemm{data[0], weights[0], weights[1], true}, {}, {}};
  lowered.inputs = {linear_form({data[0], data[1], 1, 1}), linear_form(turned)};
  lowered.output = linear_form({data[0], weights[0], 1, 1});
  return lowered;
}

inline Lowered batch_matmul(const Graph& graph, const GraphNode& node) {
  expect_inputs(node, 2, 2);
  const Dims a = input_of(graph, node, 0).dims();
  const Dims b = input_of(graph, node, 1).dims();
  const bool transposed = node.attr("transpose_b").integer() != 0;
  const uint32_t n = transposed ? b[1] : b[2];
  const uint32_t k = transposed ? b[2] : b[1];
  if (a[0] != 1 || b[0] != 1 || a[2] != k) refuse_node(node, {"multiplies what does not fit"});
  Lowered lowered{Gemm{a[1], n, k, transposed}, {}, {}};
  lowered.inputs = {linear_form({a[1], a[2], 1, 1}), linear_form({1, 1, b[1], b[2]})};
  lowered.output = linear_form({a[1], n, 1, 1});
  return lowered;
}

inline Lowered pad(const Graph& graph, const GraphNode& node) {
  expect_inputs(node, 1, 1);
  Pad pad;
  const std::string mode = node.attr("pad_mode").text();
  if (mode != "constant" && mode != "reflect") refuse_node(node, {"pads by ", mode});
  pad.reflect = mode == "reflect";
  const auto widths = node.integers("pad_width", 4);
  for (size_t i = 0; i < 4; ++i) pad.widths[i] = static_cast<uint32_t>(widths[i]);
  return plain(graph, node, pad);
}

inline const std::map<std::string, Binary::Kind>& binary_kinds() {
  static const std::map<std::string, Binary::Kind> kinds = {
      {"add", Binary::Kind::kAdd},           {"subtract", Binary::Kind::kSubtract},
      {"multiply", Binary::Kind::kMultiply}, {"divide", Binary::Kind::kDivide},
      {"minimum", Binary::Kind::kMinimum},   {"maximum", Binary::Kind::kMaximum},
  };
  return kinds;
}

inline Lowered batch_norm(const Graph& graph, const GraphNode& node) {
  expect_inputs(node, 5, 5);
  if (node.attr("axis").integer() != 1) refuse_node(node, {"normalises along another axis than 1"});
  Lowered lowered =
      plain(graph, node, BatchNorm{static_cast<float>(node.attr("epsilon").number())});
  as_channels(graph, node, 1, &lowered);
  return lowered;
}

inline Lowered one_input(const Graph& graph, const GraphNode& node, Operation operation) {
  expect_inputs(node, 1, 1);
  return plain(graph, node, std::move(operation));
}

inline Lowered by_name(const Graph& graph, const GraphNode& node) {
  using Mode = Convolution::Mode;
  if (node.ends_with("nn.conv2d")) return convolution(graph, node, Mode::kFull);
  if (node.ends_with("nn.depthwise_conv2d")) return convolution(graph, node, Mode::kDepthwise);
  if (node.ends_with("nn.conv2d_transpose")) return convolution(graph, node, Mode::kTranspose);
  if (node.ends_with("nn.relu6")) return one_input(graph, node, Activate{Activation::kRelu6});
  if (node.ends_with("nn.relu")) return one_input(graph, node, Activate{Activation::kRelu});
  if (node.ends_with("nn.batch_norm")) return batch_norm(graph, node);
  if (node.ends_with("nn.global_avg_pool2d")) return pooling(graph, node, true, true);
  if (node.ends_with("nn.global_max_pool2d")) return pooling(graph, node, false, true);
  if (node.ends_with("nn.avg_pool2d")) return pooling(graph, node, true, false);
  if (node.ends_with("nn.max_pool2d")) return pooling(graph, node, false, false);
  if (node.ends_with("nn.softmax")) return softmax(node);
  if (node.ends_with("reshape") || node.ends_with("nn.batch_flatten")) {
    return one_input(graph, node, Reshape{});
  }
  if (node.name == "concatenate") {
    expect_inputs(node, 2, SIZE_MAX);
    return plain(graph, node, Concat{static_cast<uint32_t>(node.attr("axis").integer())});
  }
  if (node.name == "nn.dense") return dense(graph, node);
  if (node.name == "nn.batch_matmul") return batch_matmul(graph, node);
  if (node.name == "nn.pad") return pad(graph, node);
  if (node.name == "clip") {
    const Clip clip{static_cast<float>(node.attr("a_min").number()),
                    static_cast<float>(node.attr("a_max").number())};
    return one_input(graph, node, clip);
  }
  if (node.name == "nn.depth_to_space") {
    const auto block = static_cast<uint32_t>(node.attr("block_size").integer());
    return one_input(graph, node, DepthToSpace{block});
  }
  if (node.name == "nn.upsampling") {
    return one_input(graph, node, Upsample{node.attr("align_corners").integer() != 0});
  }
  for (const auto& [name, kind] : binary_kinds()) {
    if (node.name == name || node.ends_with(("relax." + name).c_str())) {
      expect_inputs(node, 2, 2);
      return plain(graph, node, Binary{kind});
    }
  }
  refuse_node(node, {"is an operator that this runtime does not know"});
}

inline bool adds_up(const Operation& operation) {
  const auto* pool = std::get_if<Pooling>(&operation);
  return std::holds_alternative<Convolution>(operation) ||
         std::holds_alternative<BatchNorm>(operation) ||
         std::holds_alternative<Softmax>(operation) ||
         std::holds_alternative<FullyConnected>(operation) ||
         std::holds_alternative<Gemm>(operation) || (pool != nullptr && pool->average);
}

// Throws ValueError for a node that is damaged, or that nothing here stands for.
[[nodiscard]] inline Lowered lower_node(const Graph& graph, const GraphNode& node) {
  if (!node.is_static()) refuse_node(node, {"has an extent that a run alone tells"});
  for (const size_t input : node.inputs) {
    if (!graph.nodes[input].is_static())
      refuse_node(node, {"reads an extent that a run alone tells"});
  }
  Lowered lowered = by_name(graph, node);
  for (const size_t input : node.inputs) {
    if (graph.nodes[input].dtype != node.dtype) refuse_node(node, {"mixes dtypes"});
  }
  if (node.dtype == DType::kFloat16) {
    // TVM's graphs say nothing: they mean half sums.  Ours ask for float ones where the model was
    // compiled for float arithmetic.
    const bool in_float = node.has("sum_dtype") && node.attr("sum_dtype").text() == "float32";
    lowered.arithmetic =
        in_float && adds_up(lowered.operation) ? Arithmetic::kHalfSumInFloat : Arithmetic::kHalf;
  }
  return lowered;
}

}  // namespace adrenoc_runtime::clml
