"""Reads a TFLite file and proves that it is whole before anything trusts its offsets.

Flatbuffers are read lazily: a damaged file fails, if at all, somewhere in the middle of its use.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tflite

from adrenoc.errors import ModelFormatError

# What the flatbuffers runtime raises on an offset that leads out of the file.
_DAMAGE = (
    struct.error,
    IndexError,
    ValueError,
    TypeError,
    AttributeError,
    UnicodeDecodeError,
    OverflowError,
    MemoryError,
)


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One node of the main graph: its kind (a custom operator's own name), inputs and outputs."""

    kind: str
    custom: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TFLiteFile:
    """A verified model with the facts that messages need; tensors are named by index."""

    model: Any
    operators: tuple[Operator, ...]
    tensor_names: tuple[str, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def label(self, operator: Operator) -> str:
        """How a message names an operator: by the tensor that it makes."""
        return f"'{self.tensor_names[operator.outputs[0]]}'" if operator.outputs else "?"


def read_tflite(path: Path) -> TFLiteFile:
    """Read and verify the file at `path`.

    Raises:
        ModelFormatError: damaged, cut off, or without a graph.
    """
    content = path.read_bytes()
    hint = "convert or download the model again"
    try:
        model = tflite.Model.GetRootAsModel(content, 0)
        found = _walk(model, len(content))
    except _DAMAGE as error:
        raise ModelFormatError(
            f"{path} ({len(content)} bytes) is damaged or cut off: {error}", hint=hint
        ) from error
    if not found.operators or not found.outputs:
        raise ModelFormatError(
            f"{path} holds a graph with {len(found.operators)} operators and "
            f"{len(found.outputs)} outputs; expected at least one of each",
            hint=hint,
        )
    return found


def _walk(model: Any, size: int) -> TFLiteFile:
    if model.SubgraphsLength() < 1:
        raise ValueError("it holds no graph")
    graph = model.Subgraphs(0)
    for index in range(model.BuffersLength()):
        # A vector that leads out of the file makes NumPy refuse it.
        data = model.Buffers(index).DataAsNumpy()
        if not isinstance(data, int) and data.nbytes > size:
            raise ValueError(f"buffer {index} is larger than the file")
    names: list[str] = []
    seen: Counter[str] = Counter()
    for index in range(graph.TensorsLength()):
        tensor = graph.Tensors(index)
        if tensor.Buffer() >= model.BuffersLength():
            raise ValueError(f"tensor {index} names a buffer that does not exist")
        tensor.ShapeAsNumpy()
        name = (tensor.Name() or b"").decode("utf-8") or f"tensor_{index}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}__{seen[name] - 1}")
    kinds = {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}
    operators = []
    for index in range(graph.OperatorsLength()):
        node = graph.Operators(index)
        code = model.OperatorCodes(node.OpcodeIndex())
        number = max(code.DeprecatedBuiltinCode(), code.BuiltinCode())
        custom = number == tflite.BuiltinOperator.CUSTOM
        kind = code.CustomCode().decode() if custom else kinds.get(number, f"operator {number}")
        inputs = _indices(node.InputsAsNumpy(), len(names))
        outputs = _indices(node.OutputsAsNumpy(), len(names))
        operators.append(Operator(kind=kind, custom=custom, inputs=inputs, outputs=outputs))
    named = NamedModel()
    named.Init(model._tab.Bytes, model._tab.Pos)
    named.names = tuple(names)
    return TFLiteFile(
        model=named,
        operators=tuple(operators),
        tensor_names=tuple(names),
        inputs=_indices(graph.InputsAsNumpy(), len(names)),
        outputs=_indices(graph.OutputsAsNumpy(), len(names)),
    )


def _indices(found: Any, count: int) -> tuple[int, ...]:
    indices = () if isinstance(found, int) else tuple(int(i) for i in found)
    for index in indices:
        if index >= count:
            raise ValueError(f"tensor {index} does not exist; there are {count}")
    return indices


class _NamedTensor(tflite.Tensor):
    """A tensor under a name that no other has."""

    unique_name = b""

    def Name(self) -> bytes:  # noqa: N802
        return self.unique_name


class _NamedSubGraph(tflite.SubGraph):
    names: tuple[str, ...] = ()

    def Tensors(self, j: int) -> _NamedTensor:  # noqa: N802
        plain = super().Tensors(j)
        tensor = _NamedTensor()
        tensor.Init(plain._tab.Bytes, plain._tab.Pos)
        tensor.unique_name = self.names[j].encode()
        return tensor


class NamedModel(tflite.Model):
    """A model whose main graph has unique tensor names: TVM's frontend tells tensors by name."""

    names: tuple[str, ...] = ()

    def Subgraphs(self, j: int) -> tflite.SubGraph:  # noqa: N802
        """Subgraph `j`."""
        plain = super().Subgraphs(j)
        if j != 0:
            return plain
        graph = _NamedSubGraph()
        graph.Init(plain._tab.Bytes, plain._tab.Pos)
        graph.names = self.names
        return graph
