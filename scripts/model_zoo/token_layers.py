"""Layers of transformers, written as exporters write them."""

import math

import numpy as np

from model_zoo.onnx_net import OnnxNet
from model_zoo.weights import RESIDUAL_SCALE


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
