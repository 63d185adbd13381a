// The dims that go with each operator.
#include <algorithm>

#include "clml/emulator.h"

namespace adrenoc_runtime::clml {
namespace {

using Extents = std::array<uint32_t, 4>;
using Inputs = std::vector<Extents>;

std::string dims_text(const Extents& dims) {
  return std::to_string(dims[0]) + "x" + std::to_string(dims[1]) + "x" + std::to_string(dims[2]) +
         "x" + std::to_string(dims[3]);
}

std::string expected_dims(const char* what, const Extents& seen, const Extents& wanted) {
  if (seen == wanted) return "";
  return std::string(what) + " is " + dims_text(seen) + ", expected " + dims_text(wanted);
}

size_t count_of(const Extents& dims) { return size_t{dims[0]} * dims[1] * dims[2] * dims[3]; }

std::string vectors_misfit(const Inputs& in, size_t first, uint32_t channels) {
  for (size_t i = first; i < in.size(); ++i) {
    std::string wrong = expected_dims("a vector", in[i], {1, channels, 1, 1});
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string check(const Convolution& op, const Inputs& in, const Extents& out) {
  const Extents &data = in[0], &weights = in[1];
  if (data[0] != 1) return "a batch of " + std::to_string(data[0]);
  const bool depthwise = op.mode == Convolution::Mode::kDepthwise;
  const Extents wanted = depthwise ? Extents{1, data[1], weights[2], weights[3]}
                                   : Extents{out[1], data[1], weights[2], weights[3]};
  std::string wrong = expected_dims("weights", weights, wanted);
  if (!wrong.empty()) return wrong;
  Extents made = {data[0], depthwise ? data[1] : weights[0], 0, 0};
  for (size_t d = 0; d < 2; ++d) {
    const int64_t window = int64_t{op.dilation[d]} * (weights[2 + d] - 1) + 1;
    const int64_t pads = int64_t{op.before[d]} + op.after[d];
    const int64_t extent = op.mode == Convolution::Mode::kTranspose
                               ? (int64_t{data[2 + d]} - 1) * op.strides[d] - pads + window
                               : (int64_t{data[2 + d]} + pads - window) / op.strides[d] + 1;
    if (extent < 1) return "a window that is larger than the data";
    made[2 + d] = static_cast<uint32_t>(extent);
  }
  wrong = expected_dims("the result", out, made);
  return wrong.empty() ? vectors_misfit(in, 2, out[1]) : wrong;
}

std::string check(const Pooling& op, const Inputs& in, const Extents& out) {
  Extents made = {in[0][0], in[0][1], 0, 0};
  for (size_t d = 0; d < 2; ++d) {
    const int64_t whole = int64_t{in[0][2 + d]} + op.before[d] + op.after[d] - op.window[d];
    if (whole < 0) return "a window that is larger than the data";
    made[2 + d] = static_cast<uint32_t>(whole / op.strides[d] + 1);
  }
  return expected_dims("the result", out, made);
}

std::string check(const BatchNorm&, const Inputs& in, const Extents& out) {
  std::string wrong = expected_dims("the result", out, in[0]);
  return wrong.empty() ? vectors_misfit(in, 1, in[0][1]) : wrong;
}

std::string check(const Binary&, const Inputs& in, const Extents& out) {
  std::string wrong = expected_dims("the second operand", in[1], in[0]);
  return wrong.empty() ? expected_dims("the result", out, in[0]) : wrong;
}

std::string check(const Concat& op, const Inputs& in, const Extents& out) {
  if (op.axis > 3) return "axis " + std::to_string(op.axis);
  Extents made = in[0];
  for (size_t i = 1; i < in.size(); ++i) {
    Extents part = in[i];
    made[op.axis] += part[op.axis];
    part[op.axis] = in[0][op.axis];
    std::string wrong = expected_dims("a part", part, in[0]);
    if (!wrong.empty()) return wrong;
  }
  return expected_dims("the result", out, made);
}

std::string check(const Reshape&, const Inputs& in, const Extents& out) {
  return count_of(in[0]) == count_of(out) ? "" : "another number of elements";
}

std::string check(const FullyConnected&, const Inputs& in, const Extents& out) {
  std::string wrong = expected_dims("data", in[0], {1, in[1][3], 1, 1});
  if (wrong.empty()) wrong = expected_dims("the bias", in[2], {1, in[1][2], 1, 1});
  return wrong.empty() ? expected_dims("the result", out, {1, in[1][2], 1, 1}) : wrong;
}

std::string check(const Gemm& op, const Inputs& in, const Extents& out) {
  const bool fits = count_of(in[0]) == size_t{op.m} * op.k &&
                    count_of(in[1]) == size_t{op.k} * op.n && count_of(out) == size_t{op.m} * op.n;
  return fits ? "" : "matrices of other sizes than m, n and k say";
}

std::string check(const Pad& op, const Inputs& in, const Extents& out) {
  const Extents& data = in[0];
  if (op.reflect && (std::max(op.widths[0], op.widths[1]) >= data[2] ||
                     std::max(op.widths[2], op.widths[3]) >= data[3])) {
    return "a reflection wider than the data";
  }
  return expected_dims("the result", out,
                       {data[0], data[1], data[2] + op.widths[0] + op.widths[1],
                        data[3] + op.widths[2] + op.widths[3]});
}

std::string check(const DepthToSpace& op, const Inputs& in, const Extents& out) {
  const uint32_t area = op.block * op.block;
  if (area == 0 || in[0][1] % area != 0) return "channels that are no multiple of the block";
  return expected_dims("the result", out,
                       {in[0][0], in[0][1] / area, in[0][2] * op.block, in[0][3] * op.block});
}

std::string check(const Upsample&, const Inputs& in, const Extents& out) {
  return in[0][0] == out[0] && in[0][1] == out[1] ? "" : "another number of channels";
}

template <typename Elementwise>
std::string check(const Elementwise&, const Inputs& in, const Extents& out) {
  return expected_dims("the result", out, in[0]);
}

}  // namespace

std::string misfit(const Operation& operation, const Inputs& inputs, const Extents& output) {
  return std::visit([&](const auto& op) { return check(op, inputs, output); }, operation);
}

}  // namespace adrenoc_runtime::clml
