"""Operators of onnxruntime's own domain that exporters and optimisers emit, in standard ones.

Before -> after:
    y = com.microsoft.QuickGelu(x)      y = x * Sigmoid(1.702 * x)

Source: onnxruntime's ContribOperators reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from adrenoc.importers.onnx_graph import attributes

DOMAIN = "com.microsoft"

_LAYER_NORMALIZATION_OPSET = 17
"""The first opset of the standard that has LayerNormalization."""


class _Writer:
    """Collects the nodes that take the place of one; names are unique by its output."""

    def __init__(self, node: onnx.NodeProto, opset: int) -> None:
        self.node, self.opset = node, opset
        self.attrs = attributes(node)
        self.nodes: list[onnx.NodeProto] = []
        self._prefix = f"{next(name for name in node.output if name)}/{node.op_type}/"

    def input(self, index: int) -> str:
        """An input's name, empty where it is left out."""
        return self.node.input[index] if index < len(self.node.input) else ""

    def number(self, name: str, default: float) -> float:
        """An attribute of one number."""
        return float(self.attrs.get(name, default))  # type: ignore[arg-type]

    def constant(self, value: float) -> str:
        """A scalar of float32."""
        tensor = numpy_helper.from_array(np.array(value, np.float32))
        return self("Constant", value=tensor)

    def __call__(self, op: str, *inputs: str, to: str = "", **attrs: object) -> str:
        """Add a standard operator; `to` names its output."""
        output = to or f"{self._prefix}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], **attrs))
        return output

    def gelu(self, x: str, to: str) -> None:
        """x / 2 * (1 + erf(x / sqrt 2))."""
        inner = self("Erf", self("Mul", x, self.constant(math.sqrt(0.5))))
        grown = self("Add", inner, self.constant(1.0))
        self("Mul", self("Mul", x, self.constant(0.5)), grown, to=to)


def _gelu(write: _Writer) -> None:
    write.gelu(write.input(0), write.node.output[0])


def _bias_gelu(write: _Writer) -> None:
    write.gelu(write("Add", write.input(0), write.input(1)), write.node.output[0])


def _quick_gelu(write: _Writer) -> None:
    x = write.input(0)
    scaled = write("Mul", x, write.constant(write.number("alpha", 1.702)))
    write("Mul", x, write("Sigmoid", scaled), to=write.node.output[0])


def _fast_gelu(write: _Writer) -> None:
    x = write.input(0)
    if write.input(1):
        x = write("Add", x, write.input(1))
    cube = write("Mul", write("Mul", x, x), x)
    inner = write("Add", x, write("Mul", cube, write.constant(0.044715)))
    bent = write("Tanh", write("Mul", inner, write.constant(math.sqrt(2 / math.pi))))
    half = write("Mul", x, write.constant(0.5))
    write("Mul", half, write("Add", bent, write.constant(1.0)), to=write.node.output[0])


def _fused_conv(write: _Writer) -> None:
    own = {"activation", "activation_params"}
    kept = {k: v for k, v in write.attrs.items() if k not in own}
    result = write("Conv", *[n for n in write.node.input[:3] if n], **kept)  # type: ignore[arg-type]
    if write.input(3):
        result = write("Add", result, write.input(3))
    name = write.attrs.get("activation", b"")
    activation = name.decode() if isinstance(name, bytes) else ""
    params: Sequence[float] = write.attrs.get("activation_params", ())  # type: ignore[assignment]
    output = write.node.output[0]
    if activation == "Clip":
        bounds = [write.constant(bound) for bound in params]
        write("Clip", result, *bounds, to=output)
    elif activation == "LeakyRelu":
        write("LeakyRelu", result, alpha=params[0], to=output)
    elif activation == "HardSigmoid":
        write("HardSigmoid", result, alpha=params[0], beta=params[1], to=output)
    else:
        write(activation or "Identity", result, to=output)


def _skip_layer_normalization(write: _Writer) -> None:
    total = write("Add", write.input(0), write.input(1))
    if write.input(4):
        total = write("Add", total, write.input(4))
    outputs = list(write.node.output)
    if len(outputs) > 3 and outputs[3]:
        write("Identity", total, to=outputs[3])
    operands = [total, write.input(2)] + ([write.input(3)] if write.input(3) else [])
    write(
        "LayerNormalization",
        *operands,
        axis=-1,
        epsilon=write.number("epsilon", 1e-12),
        to=outputs[0],
    )


_REWRITES: dict[str, Callable[[_Writer], None]] = {
    "BiasGelu": _bias_gelu,
    "FastGelu": _fast_gelu,
    "FusedConv": _fused_conv,
    "Gelu": _gelu,
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": _skip_layer_normalization,
}


def rewrite_contrib(graph: onnx.GraphProto, opset: int) -> dict[str, int]:
    """Write the contrib operators of `graph`, in place, as standard ones; count them by type.

    What cannot be rewritten stays, to be refused by its domain.
    """
    counts: dict[str, int] = {}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        rewrite = _REWRITES.get(node.op_type) if node.domain == DOMAIN else None
        if rewrite is None or not _can(node, opset):
            nodes.append(node)
            continue
        writer = _Writer(node, opset)
        rewrite(writer)
        nodes += writer.nodes
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
    if counts:
        del graph.node[:]
        graph.node.extend(nodes)
    return counts


def _can(node: onnx.NodeProto, opset: int) -> bool:
    if node.op_type == "SkipLayerNormalization":
        # Mean and deviation, its second and third output, are for training.
        return opset >= _LAYER_NORMALIZATION_OPSET and not any(node.output[1:3])
    return True
