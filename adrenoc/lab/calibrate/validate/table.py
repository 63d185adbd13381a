"""The layers that are measured: rows of `targets/validation.toml`, each as a small ONNX model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import onnx

from adrenoc.base.files.read import data_folder, read_toml
from adrenoc.lab.net import Net


@dataclass(frozen=True, kw_only=True)
class LayerRow:
    """A layer with what is told of it. `join` is what the cost model decides about it (`JOINS` of
    `session.py`), empty for nothing. `kernels` are the families whose schedules count; all that
    have schedules where it is empty."""

    layer: LayerModel
    family: str
    join: str = ""
    kept_out: bool = False
    """Whether no constant is fitted to it."""
    kernels: tuple[str, ...] = ()


def layer_rows() -> tuple[LayerRow, ...]:
    """Return all rows, in the order of the file."""
    table = read_toml(data_folder("targets") / "validation.toml")
    return tuple(_row(fields) for fields in table["layers"])


def _row(fields: Mapping[str, Any]) -> LayerRow:
    known = dict(fields)
    layer = LayerModel(
        name=known.pop("name"),
        op=known.pop("op"),
        shape=tuple(known.pop("shape")),
        weights=tuple(known.pop("weights", ())),
        attrs=known.pop("attrs", {}),
        given=known.pop("given", False),
    )
    kernels = tuple(known.pop("kernels", ()))
    return LayerRow(layer=layer, kernels=kernels, **known)


def families_in_turn(rows: Sequence[LayerRow]) -> tuple[LayerRow, ...]:
    """Return the first layer of each family, then the second ones, for little time."""
    places: defaultdict[str, Iterator[int]] = defaultdict(count)
    return tuple(sorted(rows, key=lambda row: next(places[row.family])))


def wanted_rows(only: tuple[str, ...]) -> tuple[LayerRow, ...]:
    """Return the rows whose names or families hold one of these parts; all where there is none."""
    rows = layer_rows()
    if not only:
        return rows
    return tuple(r for r in rows if any(part in f"{r.family}: {r.layer.name}" for part in only))


@dataclass(frozen=True, kw_only=True)
class LayerModel:
    """Operators between two others, which keep them away from the graph's borders. `op` is one of
    `BUILDERS`, or an operator of ONNX that reads the input, `weights` and a bias."""

    name: str
    op: str
    shape: tuple[int, ...]
    weights: tuple[int, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    given: bool = False
    """Whether it reads what the model is given; else what a ReLU makes of that."""

    def model(self) -> onnx.ModelProto:
        """Return the layer's model; its weights are the same each time."""
        net = Net()
        net.begin(self.name)
        for output in BUILDERS.get(self.op, _one_operator)(net, self):
            net.output(output)
        return onnx.load_model_from_string(net.model())


def _one_operator(net: Net, layer: LayerModel) -> tuple[str, ...]:
    """Add ReLU, the layer with bias, ReLU, and a sigmoid that takes the result as a texture."""
    x = net.input(*layer.shape)
    x = x if layer.given else net("Relu", x)
    operands: tuple[str, ...] = ()
    if layer.weights:
        of_channels = {"MatMul": -1, "ConvTranspose": 1}.get(layer.op, 0)
        operands = (net.weight(*layer.weights), _zeros(net, layer.weights[of_channels]))
    if layer.op == "MatMul":
        made = net("Add", net("MatMul", x, operands[0]), operands[1])
    elif layer.op == "Shuffled":
        made = net("DepthToSpace", net("Conv", x, *operands, **layer.attrs), blocksize=2)
    else:
        made = net(layer.op, x, *operands, **layer.attrs)
    return (net("Tanh" if layer.op == "Softmax" else "Softmax", net("Relu", made)),)


def _zeros(net: Net, count: int) -> str:
    return net.const([0.0] * count)


def _relu6(net: Net, x: str) -> str:
    return net("Clip", x, net.const(0.0), net.const(6.0))


def _attention(net: Net, layer: LayerModel) -> tuple[str, ...]:
    """Split queries, keys and values off a joint projection, as vision transformers do."""
    heads, tokens, width = layer.shape
    dim = heads * width
    x = net("MatMul", net("Relu", net.input(1, tokens, dim)), net.weight(dim, 3 * dim))
    parts = net("Reshape", x, net.ints(1, tokens, 3, heads, width))
    parts = net("Transpose", parts, perm=[2, 0, 3, 1, 4])
    query, key, value = (net("Gather", parts, net.const(i, np.int64), axis=0) for i in range(3))
    scores = net("MatMul", query, net("Transpose", key, perm=[0, 1, 3, 2]))
    shares = net("Softmax", net("Mul", scores, net.const(width**-0.5)), axis=-1)
    mixed = net("Transpose", net("MatMul", shares, value), perm=[0, 2, 1, 3])
    joined = net("Reshape", mixed, net.ints(1, tokens, dim))
    return (net("Softmax", joined, axis=-1),)


def _product(net: Net, layer: LayerModel) -> tuple[str, ...]:
    """Add a batched product of two activations."""
    heads, rows, depth, columns = layer.shape
    operands = (
        net("Relu", net.input(1, heads, *sides)) for sides in ((rows, depth), (depth, columns))
    )
    return (net("Softmax", net("MatMul", *operands), axis=-1),)


def _depthwise(net: Net, x: str, layer: LayerModel, bias: str, channels: int) -> str:
    kernel, stride = layer.attrs["kernel"], layer.attrs["stride"]
    where: dict[str, Any] = {"pads": [kernel // 2] * 4, "strides": [stride] * 2}
    taps = net.weight(channels, 1, kernel, kernel)
    return _relu6(net, net("Conv", x, taps, bias, group=channels, **where))


def _separable(net: Net, layer: LayerModel) -> tuple[str, ...]:
    """Add a depthwise convolution, ReLU6, a 1x1 convolution; `apart`: another reader between."""
    x, channels = net("Relu", net.input(*layer.shape)), layer.shape[1]
    between = _depthwise(net, x, layer, _zeros(net, channels), channels)
    last = net("Conv", between, net.weight(*layer.weights), _zeros(net, layer.weights[0]))
    return _read_both(net, last, between, layer)


def _expansion(net: Net, layer: LayerModel) -> tuple[str, ...]:
    """Add a 1x1 convolution, ReLU6, a depthwise one, ReLU6; `apart`: another reader between."""
    x = net("Relu", net.input(*layer.shape))
    channels = layer.weights[0]
    between = _relu6(net, net("Conv", x, net.weight(*layer.weights), net.weight(channels)))
    last = _depthwise(net, between, layer, net.weight(channels), channels)
    return _read_both(net, last, between, layer)


def _read_both(net: Net, last: str, between: str, layer: LayerModel) -> tuple[str, ...]:
    ends = (last, between) if layer.attrs.get("apart") else (last,)
    return tuple(net("Softmax", end) for end in ends)


def _prologue(net: Net, layer: LayerModel) -> tuple[str, ...]:
    """Add batch norm and ReLU of a tensor that others read too, and a convolution of them."""
    x, channels = net("Relu", net.input(*layer.shape)), layer.shape[1]
    scaled = net("Mul", x, net.weight(channels, 1, 1))
    moved = net("Relu", net("Add", scaled, net.weight(channels, 1, 1)))
    return _convolve(net, moved, x, layer)


def _enlarged(net: Net, layer: LayerModel) -> tuple[str, ...]:
    """Enlarge an image by its nearest pixels, which others read too; a convolution reads that."""
    x = net("Relu", net.input(*layer.shape))
    how = {"mode": "nearest", "nearest_mode": "floor"}
    how["coordinate_transformation_mode"] = "asymmetric"
    enlarged = net("Resize", x, "", net.const([1.0, 1.0, 2.0, 2.0]), **how)
    return _convolve(net, enlarged, x, layer)


def _convolve(net: Net, x: str, beside: str, layer: LayerModel) -> tuple[str, ...]:
    weight, bias = net.weight(*layer.weights), _zeros(net, layer.weights[0])
    made = net("Conv", x, weight, bias, **layer.attrs)
    return net("Softmax", made), net("Softmax", beside)


BUILDERS: Mapping[str, Callable[[Net, LayerModel], tuple[str, ...]]] = {
    "Attention": _attention,
    "Product": _product,
    "Separable": _separable,
    "Expansion": _expansion,
    "Prologue": _prologue,
    "Enlarged": _enlarged,
}
"""Layers that are more than one operator."""
