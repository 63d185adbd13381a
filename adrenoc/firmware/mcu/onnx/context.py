"""An ONNX graph while it becomes a network: what translations of operators ask of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.fixed_point import INT8
from adrenoc.firmware.mcu.network import Tensor
from adrenoc.firmware.mcu.operators import Move, Requantise, Reshape
from adrenoc.firmware.mcu.operators import Operator as NetworkOperator
from adrenoc.importers.onnx.graph import OnnxGraph, attributes

_UNSIGNED = 128
_BYTES = {onnx.TensorProto.INT8: 0, onnx.TensorProto.UINT8: _UNSIGNED}
_TO_LAST, _TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


@dataclass(kw_only=True)
class Importing:
    """A translation under way.

    Tensors of four axes lie with channels last; bytes without sign are stored less 128.
    """

    graph: OnnxGraph
    operators: list[NetworkOperator] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    """The tensor of each name."""

    def constant(self, node: onnx.NodeProto, index: int) -> np.ndarray:
        """Return the value of an input that has to be known."""
        name = node.input[index] if index < len(node.input) else ""
        if name not in self.graph.constants:
            raise RefusedError(f"input {index} is not a constant")
        return self.graph.constants[name]

    def number(self, node: onnx.NodeProto, index: int) -> Any:
        """Return the one number of a constant, in its own type."""
        value = self.constant(node, index).reshape(-1)
        if value.size != 1:
            raise RefusedError(f"input {index} has {value.size} numbers, expected one")
        return value[0]

    def data(self, node: onnx.NodeProto, index: int) -> int:
        """Return the tensor of an input that varies."""
        if node.input[index] not in self.places:
            raise RefusedError(f"input {index} is no tensor of bytes that varies")
        return self.places[node.input[index]]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the file's shape of a tensor."""
        known = self.graph.types.get(name)
        if known is None or known.shape is None:
            raise RefusedError(f"'{name}' has no static shape")
        return tuple(int(d) for d in known.shape)

    def offset(self, name: str) -> int:
        """Return what a stored number of the firmware is below the file's."""
        known = self.graph.types.get(name)
        if known is None or known.element not in _BYTES:
            raise RefusedError(f"'{name}' is no tensor of bytes")
        return _BYTES[known.element]

    def make(self, name: str, scale: float, zero: int) -> int:
        """Return a tensor for a name of the file, with the file's zero point."""
        shape = self.shape(name)
        if len(shape) == 4:
            shape = tuple(shape[a] for a in _TO_LAST)
        self.places[name] = self.add(shape, name, scale, zero - self.offset(name))
        return self.places[name]

    def like(self, name: str, source: int) -> int:
        """Return a tensor for a name of the file, with another's quanta."""
        tensor = self.tensors[source]
        return self.make(name, tensor.scale, tensor.zero + self.offset(name))

    def add(self, shape: tuple[int, ...], name: str, scale: float, zero: int) -> int:
        """Return a tensor."""
        return self.add_tensor(Tensor(name=name, shape=shape, scale=scale, zero=zero))

    def add_tensor(self, tensor: Tensor) -> int:
        """Return the place of a new tensor."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def spread(self, source: int, places: tuple[np.ndarray, np.ndarray]) -> int:
        """Return an image with other rows and columns: which one each reads, -1 for zeros."""
        tensor = self.tensors[source]
        n, _, width, depth = tensor.shape
        shape = (n, len(places[0]), len(places[1]), depth)
        result = self.add(shape, f"{tensor.name} spread", tensor.scale, tensor.zero)
        rows, columns = (
            np.where(index < 0, -1, index * step)
            for index, step in zip(places, (width * depth, depth), strict=True)
        )
        offsets = (np.zeros(1, np.int64), rows, columns, np.arange(depth))
        self.operators.append(Move(source=source, result=result, offsets=offsets, fill=tensor.zero))
        return result

    def transpose(self, source: int, order: tuple[int, ...], label: str) -> int:
        """Return a tensor with its axes in another order; by a move, where that moves anything."""
        tensor = self.tensors[source]
        shape = tuple(tensor.shape[a] for a in order)
        long = [a for a in order if tensor.shape[a] > 1]
        result = self.add(shape, tensor.name, tensor.scale, tensor.zero)
        if long == sorted(long):
            self.operators.append(Reshape(source=source, result=result))
        else:
            steps = [int(np.prod(tensor.shape[a + 1 :])) for a in range(len(tensor.shape))]
            offsets = [np.arange(tensor.shape[a]) * steps[a] for a in order if a in long]
            offsets = [np.zeros(1, np.int64)] * (4 - len(offsets)) + offsets
            self.operators.append(
                Move(source=source, result=result, offsets=tuple(offsets), fill=0)  # type: ignore[arg-type]
            )
        self.labels.append(label)
        return result

    def channels_first(self, source: int) -> int:
        """Return the tensor in the file's own order."""
        if len(self.tensors[source].shape) != 4:
            return source
        return self.transpose(source, _TO_FIRST, "Transpose")

    def channels_last(self, source: int) -> int:
        """Return a tensor of the file's own order as the network has it."""
        if len(self.tensors[source].shape) != 4:
            return source
        return self.transpose(source, _TO_LAST, "Transpose")


def float_rule(reals: np.ndarray, zero: int, offset: int) -> Requantise:
    """Sums by factors in float32, halves to even, as onnxruntime rounds."""
    low, high = INT8
    return Requantise(
        zero=zero - offset, low=low, high=high, reals=np.asarray(reals, np.float32).reshape(-1)
    )


def options(node: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes."""
    return dict(attributes(node))


Translation: TypeAlias = Callable[[Importing, onnx.NodeProto], None]
"""Adds what a node of the file is to the network.

Raises:
    RefusedError: it is of a kind that has no kernel, with the reason.
    ValueError: the file contradicts itself.
"""
