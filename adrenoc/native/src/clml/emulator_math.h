// The reference arithmetic, and the dims that go with each operator.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "clml/backend.h"

namespace adrenoc_runtime::clml {

// The reference arithmetic: dense tensors of floats in the order n, c, h, w.
struct Plain {
  std::array<uint32_t, 4> dims = {1, 1, 1, 1};
  std::vector<float> data;

  [[nodiscard]] size_t offset(uint32_t n, uint32_t c) const {
    return (size_t{n} * dims[1] + c) * dims[2] * dims[3];
  }
};

inline void activate(std::optional<Activation> kind, std::vector<float>* data) {
  if (!kind.has_value()) return;
  const float high = *kind == Activation::kRelu6 ? 6.0f : std::numeric_limits<float>::infinity();
  for (float& value : *data) value = std::min(std::max(value, 0.0f), high);
}

// Adds the products of weights and data.  Each pixel of one side, which a grid of strides gives its
// place on the other, is multiplied for each tap: data has the grid where the convolution is
// transposed, else the result.
inline void convolve(const Convolution& conv, const Plain& data, const Plain& weights, Plain* out) {
  const bool transposed = conv.mode == Convolution::Mode::kTranspose;
  const bool depthwise = conv.mode == Convolution::Mode::kDepthwise;
  const std::array<uint32_t, 4> grid = transposed ? data.dims : out->dims;
  const std::array<uint32_t, 4> wide = transposed ? out->dims : data.dims;
  const auto convolve_plane = [&](const float* taps, const float* from, float* to) {
    for (uint32_t ky = 0; ky < weights.dims[2]; ++ky) {
      for (uint32_t kx = 0; kx < weights.dims[3]; ++kx) {
        const float factor = *taps++;
        for (uint32_t y = 0; y < grid[2]; ++y) {
          const int64_t far_y =
              int64_t{y} * conv.strides[0] + int64_t{ky} * conv.dilation[0] - conv.before[0];
          if (far_y < 0 || far_y >= wide[2]) continue;
          for (uint32_t x = 0; x < grid[3]; ++x) {
            const int64_t far_x =
                int64_t{x} * conv.strides[1] + int64_t{kx} * conv.dilation[1] - conv.before[1];
            if (far_x < 0 || far_x >= wide[3]) continue;
            const size_t near = size_t{y} * grid[3] + x;
            const size_t far = static_cast<size_t>(far_y) * wide[3] + static_cast<size_t>(far_x);
            to[transposed ? far : near] += factor * from[transposed ? near : far];
          }
        }
      }
    }
  };
  for (uint32_t n = 0; n < data.dims[0]; ++n) {
    for (uint32_t i = 0; i < data.dims[1]; ++i) {
      const uint32_t first = depthwise ? i : 0;
      const uint32_t last = depthwise ? i + 1 : out->dims[1];
      for (uint32_t o = first; o < last; ++o) {
        convolve_plane(weights.data.data() + weights.offset(depthwise ? 0 : o, i),
                       data.data.data() + data.offset(n, i), out->data.data() + out->offset(n, o));
      }
    }
  }
}

// (x - mean) / sqrt(variance + epsilon) * scale + offset, the vectors from `in[first]` on.
inline void normalise(float epsilon, const std::vector<Plain>& in, size_t first, Plain* out) {
  const size_t pixels = size_t{out->dims[2]} * out->dims[3];
  for (uint32_t n = 0; n < out->dims[0]; ++n) {
    for (uint32_t c = 0; c < out->dims[1]; ++c) {
      const float factor = in[first].data[c] / std::sqrt(in[first + 3].data[c] + epsilon);
      const float mean = in[first + 2].data[c], offset = in[first + 1].data[c];
      float* values = out->data.data() + out->offset(n, c);
      for (size_t p = 0; p < pixels; ++p) values[p] = (values[p] - mean) * factor + offset;
    }
  }
}

inline void run_op(const Convolution& conv, const std::vector<Plain>& in, Plain* out) {
  std::fill(out->data.begin(), out->data.end(), 0.0f);
  if (conv.has_bias) {
    const size_t pixels = size_t{out->dims[2]} * out->dims[3];
    for (size_t i = 0; i < out->data.size(); ++i) {
      out->data[i] = in[2].data[i / pixels % out->dims[1]];
    }
  }
  convolve(conv, in[0], in[1], out);
  if (conv.epsilon.has_value()) normalise(*conv.epsilon, in, conv.has_bias ? 3 : 2, out);
  activate(conv.activation, &out->data);
}

inline void run_op(const Activate& op, const std::vector<Plain>& in, Plain* out) {
  out->data = in[0].data;
  activate(op.kind, &out->data);
}

inline void run_op(const Clip& op, const std::vector<Plain>& in, Plain* out) {
  out->data = in[0].data;
  for (float& value : out->data) value = std::min(std::max(value, op.low), op.high);
}

inline void run_op(const BatchNorm& op, const std::vector<Plain>& in, Plain* out) {
  out->data = in[0].data;
  normalise(op.epsilon, in, 1, out);
}

// Fills the output, in its order.
template <typename Element>
void fill(Plain* out, Element element) {
  size_t at = 0;
  for (uint32_t n = 0; n < out->dims[0]; ++n) {
    for (uint32_t c = 0; c < out->dims[1]; ++c) {
      for (uint32_t y = 0; y < out->dims[2]; ++y) {
        for (uint32_t x = 0; x < out->dims[3]; ++x) out->data[at++] = element(n, c, y, x);
      }
    }
  }
}

inline float pool_window(const Pooling& op, const Plain& in, const float* plane, uint32_t y,
                         uint32_t x) {
  float sum = 0, most = -std::numeric_limits<float>::infinity();
  int64_t count = 0;
  for (uint32_t ky = 0; ky < op.window[0]; ++ky) {
    const int64_t iy = int64_t{y} * op.strides[0] + ky - op.before[0];
    if (iy < 0 || iy >= in.dims[2]) continue;
    for (uint32_t kx = 0; kx < op.window[1]; ++kx) {
      const int64_t ix = int64_t{x} * op.strides[1] + kx - op.before[1];
      if (ix < 0 || ix >= in.dims[3]) continue;
      const float value = plane[iy * in.dims[3] + ix];
      sum += value;
      most = std::max(most, value);
      ++count;
    }
  }
  return op.average ? sum / static_cast<float>(std::max<int64_t>(count, 1)) : most;
}

inline void run_op(const Pooling& op, const std::vector<Plain>& in, Plain* out) {
  fill(out, [&](uint32_t n, uint32_t c, uint32_t y, uint32_t x) {
    return pool_window(op, in[0], in[0].data.data() + in[0].offset(n, c), y, x);
  });
}

inline void run_op(const Softmax&, const std::vector<Plain>& in, Plain* out) {
  const size_t pixels = size_t{out->dims[2]} * out->dims[3];
  const uint32_t channels = out->dims[1];
  for (uint32_t n = 0; n < out->dims[0]; ++n) {
    for (size_t p = 0; p < pixels; ++p) {
      const float* source = in[0].data.data() + in[0].offset(n, 0) + p;
      float* target = out->data.data() + out->offset(n, 0) + p;
      float most = source[0], sum = 0;
      for (uint32_t c = 1; c < channels; ++c) most = std::max(most, source[c * pixels]);
      for (uint32_t c = 0; c < channels; ++c) {
        sum += target[c * pixels] = std::exp(source[c * pixels] - most);
      }
      for (uint32_t c = 0; c < channels; ++c) target[c * pixels] /= sum;
    }
  }
}

inline float both(Binary::Kind kind, float a, float b) {
  switch (kind) {
    case Binary::Kind::kAdd: return a + b;
    case Binary::Kind::kSubtract: return a - b;
    case Binary::Kind::kMultiply: return a * b;
    case Binary::Kind::kDivide: return a / b;
    case Binary::Kind::kMinimum: return std::min(a, b);
    default: return std::max(a, b);
  }
}

inline void run_op(const Binary& op, const std::vector<Plain>& in, Plain* out) {
  for (size_t i = 0; i < out->data.size(); ++i) {
    out->data[i] = both(op.kind, in[0].data[i], in[1].data[i]);
  }
}

inline void run_op(const Concat& op, const std::vector<Plain>& in, Plain* out) {
  size_t inner = 1, outer = 1, at = 0;
  for (size_t d = op.axis + 1; d < 4; ++d) inner *= out->dims[d];
  for (size_t d = 0; d < op.axis; ++d) outer *= out->dims[d];
  for (size_t o = 0; o < outer; ++o) {
    for (const Plain& part : in) {
      const size_t run = part.dims[op.axis] * inner;
      std::copy_n(part.data.data() + o * run, run, out->data.data() + at);
      at += run;
    }
  }
}

inline void run_op(const Reshape&, const std::vector<Plain>& in, Plain* out) {
  out->data = in[0].data;
}

inline void run_op(const FullyConnected&, const std::vector<Plain>& in, Plain* out) {
  const size_t columns = in[1].dims[3];
  for (size_t o = 0; o < out->data.size(); ++o) {
    float sum = in[2].data[o];
    for (size_t i = 0; i < columns; ++i) sum += in[1].data[o * columns + i] * in[0].data[i];
    out->data[o] = sum;
  }
}

inline void run_op(const Gemm& op, const std::vector<Plain>& in, Plain* out) {
  std::fill(out->data.begin(), out->data.end(), 0.0f);
  const float *a = in[0].data.data(), *b = in[1].data.data();
  for (size_t m = 0; m < op.m; ++m) {
    float* row = out->data.data() + m * op.n;
    if (op.transpose_b) {
      for (size_t n = 0; n < op.n; ++n) {
        float sum = 0;
        for (size_t k = 0; k < op.k; ++k) sum += a[m * op.k + k] * b[n * op.k + k];
        row[n] = sum;
      }
      continue;
    }
    for (size_t k = 0; k < op.k; ++k) {
      const float factor = a[m * op.k + k];
      for (size_t n = 0; n < op.n; ++n) row[n] += factor * b[k * op.n + n];
    }
  }
}

inline void run_op(const Pad& op, const std::vector<Plain>& in, Plain* out) {
  const int64_t height = in[0].dims[2], width = in[0].dims[3];
  const auto mirrored = [](int64_t i, int64_t size) {
    return i < 0 ? -i : i >= size ? 2 * size - 2 - i : i;
  };
  fill(out, [&](uint32_t n, uint32_t c, int64_t y, int64_t x) {
    const float* plane = in[0].data.data() + in[0].offset(n, c);
    const int64_t iy = y - op.widths[0], ix = x - op.widths[2];
    if (iy >= 0 && iy < height && ix >= 0 && ix < width) return plane[iy * width + ix];
    return op.reflect ? plane[mirrored(iy, height) * width + mirrored(ix, width)] : 0.0f;
  });
}

inline void run_op(const DepthToSpace& op, const std::vector<Plain>& in, Plain* out) {
  fill(out, [&](uint32_t n, uint32_t c, uint32_t y, uint32_t x) {
    const uint32_t corner = y % op.block * op.block + x % op.block;
    const size_t plane = in[0].offset(n, corner * out->dims[1] + c);
    return in[0].data[plane + y / op.block * size_t{in[0].dims[3]} + x / op.block];
  });
}

inline void run_op(const Upsample& op, const std::vector<Plain>& in, Plain* out) {
  const auto scale = [&](uint32_t from, uint32_t to) {
    if (!op.align_corners) return static_cast<float>(from) / static_cast<float>(to);
    return to > 1 ? static_cast<float>(from - 1) / static_cast<float>(to - 1) : 0.0f;
  };
  const uint32_t height = in[0].dims[2], width = in[0].dims[3];
  const float sy = scale(height, out->dims[2]), sx = scale(width, out->dims[3]);
  fill(out, [&](uint32_t n, uint32_t c, uint32_t y, uint32_t x) {
    const float* plane = in[0].data.data() + in[0].offset(n, c);
    const float fy = static_cast<float>(y) * sy, fx = static_cast<float>(x) * sx;
    const auto y0 = std::min(static_cast<uint32_t>(fy), height - 1);
    const auto x0 = std::min(static_cast<uint32_t>(fx), width - 1);
    const uint32_t y1 = std::min(y0 + 1, height - 1), x1 = std::min(x0 + 1, width - 1);
    const float wy = fy - static_cast<float>(y0), wx = fx - static_cast<float>(x0);
    const float top = plane[y0 * width + x0] * (1 - wx) + plane[y0 * width + x1] * wx;
    const float low = plane[y1 * width + x0] * (1 - wx) + plane[y1 * width + x1] * wx;
    return top * (1 - wy) + low * wy;
  });
}

// Fills `output`, whose dims are set.
inline void compute(const Operation& operation, const std::vector<Plain>& inputs, Plain* output) {
  size_t count = 1;
  for (const uint32_t extent : output->dims) count *= extent;
  output->data.resize(count);
  std::visit([&](const auto& op) { run_op(op, inputs, output); }, operation);
}

using Extents = std::array<uint32_t, 4>;
using Inputs = std::vector<Extents>;

inline std::string dims_text(const Extents& dims) {
  return std::to_string(dims[0]) + "x" + std::to_string(dims[1]) + "x" + std::to_string(dims[2]) +
         "x" + std::to_string(dims[3]);
}

inline std::string expected_dims(const char* what, const Extents& seen, const Extents& wanted) {
  if (seen == wanted) return "";
  return std::string(what) + " is " + dims_text(seen) + ", expected " + dims_text(wanted);
}

inline std::string vectors_misfit(const Inputs& in, size_t first, uint32_t channels) {
  for (size_t i = first; i < in.size(); ++i) {
    std::string wrong = expected_dims("a vector", in[i], {1, channels, 1, 1});
    if (!wrong.empty()) return wrong;
  }
  return "";
}

inline std::string check(const Convolution& op, const Inputs& in, const Extents& out) {
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

inline std::string check(const Pooling& op, const Inputs& in, const Extents& out) {
  Extents made = {in[0][0], in[0][1], 0, 0};
  for (size_t d = 0; d < 2; ++d) {
    const int64_t whole = int64_t{in[0][2 + d]} + op.before[d] + op.after[d] - op.window[d];
    if (whole < 0) return "a window that is larger than the data";
    made[2 + d] = static_cast<uint32_t>(whole / op.strides[d] + 1);
  }
  return expected_dims("the result", out, made);
}

inline std::string check(const BatchNorm&, const Inputs& in, const Extents& out) {
  std::string wrong = expected_dims("the result", out, in[0]);
  return wrong.empty() ? vectors_misfit(in, 1, in[0][1]) : wrong;
}

inline std::string check(const Binary&, const Inputs& in, const Extents& out) {
  std::string wrong = expected_dims("the second operand", in[1], in[0]);
  return wrong.empty() ? expected_dims("the result", out, in[0]) : wrong;
}

inline std::string check(const Concat& op, const Inputs& in, const Extents& out) {
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

inline size_t count_of(const Extents& dims) {
  return size_t{dims[0]} * dims[1] * dims[2] * dims[3];
}

inline std::string check(const Reshape&, const Inputs& in, const Extents& out) {
  return count_of(in[0]) == count_of(out) ? "" : "another number of elements";
}

inline std::string check(const FullyConnected&, const Inputs& in, const Extents& out) {
  std::string wrong = expected_dims("data", in[0], {1, in[1][3], 1, 1});
  if (wrong.empty()) wrong = expected_dims("the bias", in[2], {1, in[1][2], 1, 1});
  return wrong.empty() ? expected_dims("the result", out, {1, in[1][2], 1, 1}) : wrong;
}

inline std::string check(const Gemm& op, const Inputs& in, const Extents& out) {
  const bool fits = count_of(in[0]) == size_t{op.m} * op.k &&
                    count_of(in[1]) == size_t{op.k} * op.n && count_of(out) == size_t{op.m} * op.n;
  return fits ? "" : "matrices of other sizes than m, n and k say";
}

inline std::string check(const Pad& op, const Inputs& in, const Extents& out) {
  const Extents& data = in[0];
  if (op.reflect && (std::max(op.widths[0], op.widths[1]) >= data[2] ||
                     std::max(op.widths[2], op.widths[3]) >= data[3])) {
    return "a reflection wider than the data";
  }
  return expected_dims("the result", out,
                       {data[0], data[1], data[2] + op.widths[0] + op.widths[1],
                        data[3] + op.widths[2] + op.widths[3]});
}

inline std::string check(const DepthToSpace& op, const Inputs& in, const Extents& out) {
  const uint32_t area = op.block * op.block;
  if (area == 0 || in[0][1] % area != 0) return "channels that are no multiple of the block";
  return expected_dims("the result", out,
                       {in[0][0], in[0][1] / area, in[0][2] * op.block, in[0][3] * op.block});
}

inline std::string check(const Upsample&, const Inputs& in, const Extents& out) {
  return in[0][0] == out[0] && in[0][1] == out[1] ? "" : "another number of channels";
}

template <typename Elementwise>
std::string check(const Elementwise&, const Inputs& in, const Extents& out) {
  return expected_dims("the result", out, in[0]);
}

// Why the dims do not go with the operator; "" where they do.
[[nodiscard]] inline std::string misfit(const Operation& operation,
                                        const std::vector<std::array<uint32_t, 4>>& inputs,
                                        const std::array<uint32_t, 4>& output) {
  return std::visit([&](const auto& op) { return check(op, inputs, output); }, operation);
}

}  // namespace adrenoc_runtime::clml
