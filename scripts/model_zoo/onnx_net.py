"""ONNX graphs layer by layer, layers of transformers, and seeded weights like trained ones.

Plain random weights make deep networks chaotic: half precision then loses a tenth of the output
range, and a comparison tests nothing.  Here half of each spatial filter is a low-pass (all taps
alike), residual branches are scaled by 0.3, and norms spread a little around the identity.
"""

import math
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

RESIDUAL_SCALE = 0.3


class Weights:
    """A stream of weights; the same seed gives the same stream."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def filters(self, shape: tuple[int, ...], fan_in: float, gain: float = 2.0) -> np.ndarray:
        """Filters [out, in, kh, kw] with the variance gain / fan_in."""
        std = math.sqrt(gain / fan_in)
        taps = self._random.standard_normal(shape)
        if shape[2] * shape[3] > 1:
            smooth = self._random.standard_normal((*shape[:2], 1, 1))
            taps = (taps + smooth) / math.sqrt(2.0)
        if shape[1] > 1:
            # Activations behind a ReLU have a positive mean.  Filters that sum to zero do not see
            # it, and what the image says is not drowned in offsets of the weights' making.
            taps = taps - taps.mean(axis=(1, 2, 3), keepdims=True)
        return (taps * std).astype(np.float32)

    def matrix(self, rows: int, columns: int, gain: float = 1.0) -> np.ndarray:
        """A matrix for a linear layer of `rows` inputs; each column sums to zero."""
        values = self._random.standard_normal((rows, columns)) * math.sqrt(gain / rows)
        values -= values.mean(axis=0)
        return values.astype(np.float32)

    def bias(self, count: int, std: float = 0.05) -> np.ndarray:
        """Small offsets."""
        return (self._random.standard_normal(count) * std).astype(np.float32)

    def near(self, centre: float, spread: float, count: int) -> np.ndarray:
        """Numbers in centre - spread to centre + spread."""
        return self._random.uniform(centre - spread, centre + spread, count).astype(np.float32)


OPSET = 17


class OnnxNet:
    """A graph under construction; each layer method takes and returns tensor names."""

    def __init__(
        self,
        name: str,
        input_shape: tuple[int, ...],
        *,
        seed: int = 0,
        dtype: type[np.floating[Any]] = np.float32,
        input_dtype: type[np.generic] | None = None,
    ) -> None:
        self.weights = Weights(seed)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._dtype = np.dtype(dtype)
        self._inputs: dict[str, np.dtype[Any]] = {}
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self.input("input", input_shape, dtype=input_dtype)

    def input(
        self, name: str, shape: tuple[int, ...], *, dtype: type[np.generic] | None = None
    ) -> str:
        """Add an input of `shape`, in the dtype of the network or its own."""
        self.shapes[name] = shape
        self._inputs[name] = self._dtype if dtype is None else np.dtype(dtype)
        return name

    def node(
        self, op_type: str, inputs: list[str], shape: tuple[int, ...], **attributes: Any
    ) -> str:
        """Append a node with one output of `shape`."""
        name = f"{op_type.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        self.shapes[name] = shape
        return name

    def constant(self, value: np.ndarray) -> str:
        """Append an initialiser; numbers with a fraction in the dtype of the network."""
        name = f"constant_{len(self._constants)}"
        if value.dtype.kind == "f":
            value = value.astype(self._dtype, copy=False)
        self._constants.append(numpy_helper.from_array(value, name))
        return name

    def conv(
        self, x: str, out: int, kernel: int, *, stride: int = 1, groups: int = 1, bias: bool = True
    ) -> str:
        """A convolution that keeps (or divides by `stride`) the extents."""
        batch, channels, height, width = self.shapes[x]
        shape = (out, channels // groups, kernel, kernel)
        inputs = [x, self.constant(self.weights.filters(shape, shape[1] * kernel * kernel))]
        if bias:
            inputs.append(self.constant(self.weights.bias(out)))
        pad = kernel // 2
        size = [(e + 2 * pad - kernel) // stride + 1 for e in (height, width)]
        return self.node(
            "Conv",
            inputs,
            (batch, out, *size),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
            group=groups,
        )

    def batch_norm(self, x: str, *, scale: float = 1.0) -> str:
        """A batch normalisation with running statistics near (0, 1)."""
        channels = self.shapes[x][1]
        parts = [
            self.weights.near(scale, 0.3 * scale, channels),
            self.weights.bias(channels, 0.3 * scale),
            self.weights.bias(channels, 0.1),
            self.weights.near(1.0, 0.2, channels),
        ]
        constants = [self.constant(part) for part in parts]
        return self.node("BatchNormalization", [x, *constants], self.shapes[x])

    def relu(self, x: str) -> str:
        """max(x, 0)."""
        return self.node("Relu", [x], self.shapes[x])

    def relu6(self, x: str) -> str:
        """x between 0 and 6."""
        bounds = [self.constant(np.float32(v)) for v in (0.0, 6.0)]
        return self.node("Clip", [x, *bounds], self.shapes[x])

    def add(self, a: str, b: str) -> str:
        """The sum of two tensors of one shape."""
        return self.node("Add", [a, b], self.shapes[a])

    def concat(self, parts: list[str]) -> str:
        batch, _, *extents = self.shapes[parts[0]]
        channels = sum(self.shapes[p][1] for p in parts)
        return self.node("Concat", parts, (batch, channels, *extents), axis=1)

    def max_pool(self, x: str, kernel: int, stride: int, *, pad: int = 0) -> str:
        batch, channels, *extents = self.shapes[x]
        size = [(e + 2 * pad - kernel) // stride + 1 for e in extents]
        return self.node(
            "MaxPool",
            [x],
            (batch, channels, *size),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
        )

    def classifier(self, x: str, classes: int) -> str:
        """Global average, flatten, linear."""
        batch, channels = self.shapes[x][:2]
        pooled = self.node("GlobalAveragePool", [x], (batch, channels, 1, 1))
        flat = self.node("Flatten", [pooled], (batch, channels), axis=1)
        weight = np.ascontiguousarray(self.weights.matrix(channels, classes, gain=100.0).T)
        inputs = [flat, self.constant(weight), self.constant(self.weights.bias(classes, 0.5))]
        return self.node("Gemm", inputs, (batch, classes), transB=1)

    def upsample_by_transpose(self, x: str, out: int) -> str:
        """A transposed convolution that doubles the extents."""
        batch, channels, height, width = self.shapes[x]
        weight = self.weights.filters((channels, out, 2, 2), channels)
        inputs = [x, self.constant(weight), self.constant(self.weights.bias(out))]
        return self.node(
            "ConvTranspose",
            inputs,
            (batch, out, 2 * height, 2 * width),
            kernel_shape=[2, 2],
            strides=[2, 2],
        )

    def upsample_by_resize(self, x: str) -> str:
        """Bilinear interpolation to twice the extents."""
        batch, channels, height, width = self.shapes[x]
        scales = self.constant(np.array([1, 1, 2, 2], np.float32))
        return self.node(
            "Resize",
            [x, "", scales],
            (batch, channels, 2 * height, 2 * width),
            mode="linear",
            coordinate_transformation_mode="half_pixel",
        )

    def finish(self, output: str) -> onnx.ModelProto:
        """The model, with `output` as its one output."""
        # The last node is renamed, so that the graph output has a name of its own.
        for node in self._nodes:
            if output in node.output:
                node.output[0] = "output"
        self.shapes["output"] = self.shapes[output]

        def value(name: str, dtype: np.dtype[Any]) -> onnx.ValueInfoProto:
            element = helper.np_dtype_to_tensor_dtype(dtype)
            return helper.make_tensor_value_info(name, element, self.shapes[name])

        graph = helper.make_graph(
            self._nodes,
            self._name,
            [value(*item) for item in self._inputs.items()],
            [value("output", self._dtype)],
            self._constants,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            producer_name="adrenoc model maker",
        )
        model.ir_version = 8
        onnx.checker.check_model(model)
        return model


def linear(net: OnnxNet, x: str, out: int, *, gain: float) -> str:
    """A product with seeded weights, and offsets."""
    *lead, rows = net.shapes[x]
    weight = net.constant(net.weights.matrix(rows, out, gain=gain))
    product = net.node("MatMul", [x, weight], (*lead, out))
    return net.node("Add", [product, net.constant(net.weights.bias(out))], (*lead, out))


def layer_norm(net: OnnxNet, x: str) -> str:
    """A normalisation of the last axis, with scales near 1."""
    dim = net.shapes[x][-1]
    scale = net.constant(net.weights.near(1.0, 0.3, dim))
    offset = net.constant(net.weights.bias(dim, 0.15))
    return net.node("LayerNormalization", [x, scale, offset], net.shapes[x], axis=-1)


def group_norm(net: OnnxNet, x: str, groups: int = 32) -> str:
    """A normalisation of channels by groups, as PyTorch exports it: as one of instances."""
    batch, channels, *extents = net.shapes[x]
    ones = [net.constant(np.full(groups, v, np.float32)) for v in (1.0, 0.0)]
    flat = reshape(net, x, (batch, groups, channels // groups * math.prod(extents)))
    normed = net.node("InstanceNormalization", [flat, *ones], net.shapes[flat], epsilon=1e-5)
    back = reshape(net, normed, net.shapes[x])
    scale = net.weights.near(1.0, 0.3, channels).reshape(channels, 1, 1)
    offset = net.weights.bias(channels, 0.15).reshape(channels, 1, 1)
    scaled = net.node("Mul", [back, net.constant(scale)], net.shapes[x])
    return net.node("Add", [scaled, net.constant(offset)], net.shapes[x])


def gelu(net: OnnxNet, x: str) -> str:
    """The Gaussian error linear unit, by its error function."""
    shape = net.shapes[x]
    inner = net.node("Div", [x, net.constant(np.float32(math.sqrt(2.0)))], shape)
    bell = net.node("Erf", [inner], shape)
    shifted = net.node("Add", [bell, net.constant(np.float32(1.0))], shape)
    product = net.node("Mul", [x, shifted], shape)
    return net.node("Mul", [product, net.constant(np.float32(0.5))], shape)


def silu(net: OnnxNet, x: str) -> str:
    """x times its sigmoid."""
    return net.node("Mul", [x, net.node("Sigmoid", [x], net.shapes[x])], net.shapes[x])


def reshape(net: OnnxNet, x: str, shape: tuple[int, ...]) -> str:
    """The same elements in another shape."""
    return net.node("Reshape", [x, net.constant(np.array(shape, np.int64))], shape)


def transpose(net: OnnxNet, x: str, perm: list[int]) -> str:
    """The same elements with their axes in another order."""
    return net.node("Transpose", [x], tuple(net.shapes[x][p] for p in perm), perm=perm)


def attention(
    net: OnnxNet, x: str, heads: int, *, of: str | None = None, mask: str | None = None
) -> str:
    """Attention of the tokens `x` to themselves, or to those `of` another tensor; `mask` is added
    to the scores."""
    other = x if of is None else of
    (batch, tokens, dim), seen = net.shapes[x], net.shapes[other][1]
    size = dim // heads
    split = {
        count: net.constant(np.array([batch, count, heads, size], np.int64))
        for count in dict.fromkeys((tokens, seen))
    }

    def head(source: str, perm: list[int]) -> str:
        count = net.shapes[source][1]
        product = linear(net, source, dim, gain=1.0)
        flat = net.node("Reshape", [product, split[count]], (batch, count, heads, size))
        return transpose(net, flat, perm)

    query, key = head(x, [0, 2, 1, 3]), head(other, [0, 2, 3, 1])
    value = head(other, [0, 2, 1, 3])
    scores = (batch, heads, tokens, seen)
    product = net.node("MatMul", [query, key], scores)
    scale = net.constant(np.float32(1.0 / math.sqrt(size)))
    scaled = net.node("Mul", [product, scale], scores)
    if mask is not None:
        scaled = net.node("Add", [scaled, mask], scores)
    weights = net.node("Softmax", [scaled], scores, axis=-1)
    mixed = net.node("MatMul", [weights, value], (batch, heads, tokens, size))
    flat = reshape(net, transpose(net, mixed, [0, 2, 1, 3]), (batch, tokens, dim))
    return linear(net, flat, dim, gain=RESIDUAL_SCALE)


def encoder_layer(net: OnnxNet, x: str, heads: int, *, mask: str | None = None) -> str:
    """Attention and two products, each normalised before and added to what it was made of."""
    dim = net.shapes[x][-1]
    x = net.add(x, attention(net, layer_norm(net, x), heads, mask=mask))
    hidden = gelu(net, linear(net, layer_norm(net, x), 4 * dim, gain=1.0))
    return net.add(x, linear(net, hidden, dim, gain=RESIDUAL_SCALE))


def patches(net: OnnxNet, dim: int, size: int) -> str:
    """The tokens of an image: squares of `size` pixels."""
    _, channels, height, width = net.shapes["input"]
    taps = (channels, size, size)
    filters = net.weights.filters((dim, *taps), math.prod(taps), gain=1.0)
    inputs = ["input", net.constant(filters), net.constant(net.weights.bias(dim))]
    shape = (1, dim, height // size, width // size)
    return to_tokens(
        net, net.node("Conv", inputs, shape, kernel_shape=[size] * 2, strides=[size] * 2)
    )


def to_tokens(net: OnnxNet, x: str) -> str:
    """An image's pixels as tokens."""
    batch, channels, *extents = net.shapes[x]
    return transpose(net, reshape(net, x, (batch, channels, math.prod(extents))), [0, 2, 1])


def to_image(net: OnnxNet, x: str, extents: tuple[int, ...]) -> str:
    """Tokens as the pixels of an image."""
    batch, _, channels = net.shapes[x]
    return reshape(net, transpose(net, x, [0, 2, 1]), (batch, channels, *extents))


def add_places(net: OnnxNet, x: str) -> str:
    """Tokens with learned numbers for where each stands."""
    _, tokens, dim = net.shapes[x]
    places = net.weights.matrix(tokens, dim, gain=0.04 * tokens)
    return net.add(x, net.constant(places.reshape(1, tokens, dim)))
