"""Writes the standard nodes that take the place of one node of onnxruntime's own domain."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from adrenoc.base.refused import RefusedError
from adrenoc.importers.onnx.graph import OnnxGraph, TensorType, attributes


class UnknownTypeError(RefusedError):
    """Nothing is known of an operand: most often what makes it is refused itself."""


class Writer:
    """Collects the nodes that take the place of one; names are unique by its output."""

    def __init__(self, node: onnx.NodeProto, graph: OnnxGraph) -> None:
        self.node, self.opset = node, graph.opset
        self.attrs: dict[str, Any] = attributes(node)
        self.nodes: list[onnx.NodeProto] = []
        self._graph = graph
        self._prefix = f"{next(name for name in node.output if name)}/{node.op_type}/"
        self._constants = 0

    @property
    def result(self) -> str:
        """Return the name of the first output."""
        return str(self.node.output[0])

    def input(self, index: int) -> str:
        """Return an input's name, empty where it is left out."""
        return str(self.node.input[index]) if index < len(self.node.input) else ""

    def output(self, index: int) -> str:
        """Return an output's name, empty where nobody reads it."""
        return str(self.node.output[index]) if index < len(self.node.output) else ""

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the static shape of an input.

        Raises:
            UnknownTypeError: it is not known.
        """
        shape = self._graph.shape_of(name)
        if shape is None:
            raise UnknownTypeError(f"the shape of '{name}' is not known")
        return shape

    def dtype(self, name: str) -> str:
        """Return the element type of an input.

        Raises:
            UnknownTypeError: it is not known.
        """
        return str(helper.tensor_dtype_to_np_dtype(self.element(name)))

    def element(self, name: str) -> int:
        """Return the element type of an input, as ONNX counts them.

        Raises:
            UnknownTypeError: it is not known.
        """
        known = self._graph.types.get(name)
        if known is None:
            raise UnknownTypeError(f"the dtype of '{name}' is not known")
        return known.element

    def value(self, name: str) -> np.ndarray | None:
        """Return the value of a constant input."""
        return self._graph.constants.get(name)

    def number(self, name: str, default: float) -> float:
        """Return an attribute of one number."""
        return float(self.attrs.get(name, default))

    def refuse_odd(self, covered: Mapping[str, Sequence[object]], *others: str) -> None:
        """Refuse attributes with other values than those that are covered, and what is told of
        others.

        Raises:
            RefusedError: naming them all.
        """
        odd = [
            f"{name} {self.attrs[name]}"
            for name, values in covered.items()
            if name in self.attrs and self.attrs[name] not in values
        ]
        if found := [*others, *odd]:
            raise RefusedError(f"it has {', '.join(found)}, which is not covered")

    def text(self, name: str, default: str = "") -> str:
        """Return an attribute of text."""
        value = self.attrs.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def constant(self, value: float) -> str:
        """Return a scalar of `float_dtype`."""
        return self.array(np.array(value, self.float_dtype))

    @property
    def float_dtype(self) -> np.dtype[Any]:
        """Return the dtype of the first input, or float32 where that holds integers.

        Raises:
            UnknownTypeError: it is not known.
        """
        dtype = np.dtype(self.dtype(self.input(0)))
        return dtype if dtype.kind == "f" else np.dtype(np.float32)

    def array(self, value: np.ndarray) -> str:
        """Return a constant tensor."""
        name = f"{self._prefix}constant{self._constants}"
        self._constants += 1
        self._graph.set_constant(name, value)
        return name

    def __call__(self, op: str, *inputs: str, out: str = "", **attrs: Any) -> str:
        """Add a standard operator; `out` names its output, and inputs left out have no names."""
        output = out or f"{self._prefix}{len(self.nodes)}"
        given = max((at + 1 for at, name in enumerate(inputs) if name), default=0)
        self.nodes.append(helper.make_node(op, inputs[:given], [output], **attrs))
        return output

    def like(self, op: str, *inputs: str, out: str = "", **attrs: Any) -> str:
        """Add an operator that the opset may not have, of the type of the node's first input."""
        output = self(op, *inputs, out=out, **attrs)
        first = self._graph.types.get(self.input(0))
        if first is not None:
            self._graph.types[output] = TensorType(element=first.element, shape=first.shape)
        return output

    def own(
        self, op: str, *inputs: str, shape: Sequence[int], out: str, like: str, **attrs: Any
    ) -> str:
        """Add an operator of our own (`ops.py`), whose result is of the dtype of `like`."""
        output = self(op, *inputs, out=out, **attrs)
        self.know(output, like=like, shape=shape)
        return output

    def know(self, name: str, *, like: str, shape: Sequence[int]) -> None:
        """Say of what is written its shape, and that it is of the dtype of `like`."""
        self._graph.types[name] = TensorType(element=self.element(like), shape=tuple(shape))

    def reshape(self, x: str, *shape: int, out: str = "") -> str:
        """Reshape to fixed extents."""
        return self("Reshape", x, self.array(np.array(shape, np.int64)), out=out)

    def total(self, x: str, *axes: int, keepdims: int = 0, out: str = "") -> str:
        """Return the sum along axes, which it leaves out unless they are kept."""
        if self.opset < 13:
            return self("ReduceSum", x, axes=axes, keepdims=keepdims, out=out)
        along = self.array(np.array(axes, np.int64))
        return self("ReduceSum", x, along, keepdims=keepdims, out=out)

    def largest(self, x: str, count: int) -> tuple[str, str]:
        """Return the largest numbers along the last axis, and their places."""
        made = tuple(f"{self._prefix}{len(self.nodes)}/{name}" for name in ("values", "places"))
        counted = self.array(np.array([count], np.int64))
        self.nodes.append(helper.make_node("TopK", [x, counted], made, axis=-1))
        return made[0], made[1]

    def split(self, x: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Return parts of `x` along an axis as slices, whose form is one in all opsets from 10."""
        parts, begin = [], 0
        for size in sizes:
            parts.append(self.slice(x, begin, begin + size, axis))
            begin += size
        return parts

    def slice(self, x: str, begin: int, end: int, axis: int) -> str:
        """Return x[begin:end] along an axis."""
        if self.opset < 10:
            return self("Slice", x, starts=[begin], ends=[end], axes=[axis])
        ints = (self.array(np.array([v], np.int64)) for v in (begin, end, axis))
        return self("Slice", x, *ints)

    def fast_gelu(self, x: str, out: str = "") -> str:
        """Return Gelu by a hyperbolic tangent, which the standard has from opset 20 on alone."""
        cube = self("Mul", self("Mul", x, x), x)
        inner = self("Add", x, self("Mul", cube, self.constant(0.044715)))
        bent = self("Tanh", self("Mul", inner, self.constant(math.sqrt(2 / math.pi))))
        half = self("Mul", x, self.constant(0.5))
        return self("Mul", half, self("Add", bent, self.constant(1.0)), out=out)

    def activate(self, name: str, x: str, params: Sequence[float], out: str = "") -> str:
        """Return the activation of a fused operator."""
        if name == "Clip" and self.opset < 11:
            return self("Clip", x, min=params[0], max=params[1], out=out)
        if name == "Clip":
            return self("Clip", x, *[self.constant(bound) for bound in params], out=out)
        if name in ("LeakyRelu", "Elu"):
            return self(name, x, out=out, **({"alpha": params[0]} if params else {}))
        if name == "HardSigmoid":
            return self(name, x, alpha=params[0], beta=params[1], out=out)
        return self(name or "Identity", x, out=out)
