"""Reads a TFLite file and proves that it is whole before anything trusts its offsets.

Flatbuffers are read lazily: a damaged file fails, if at all, somewhere in the middle of its use.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flatbuffers  # type: ignore[import-untyped]
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
        repeated = [n for n, count in Counter(found.tensor_names).items() if count > 1]
        if repeated:
            # TVM's frontend tells tensors apart by name.
            model = _with_unique_names(content)
            found = _walk(model, None)
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


def _walk(model: Any, size: int | None) -> TFLiteFile:
    if model.SubgraphsLength() < 1:
        raise ValueError("it holds no graph")
    graph = model.Subgraphs(0)
    for index in range(model.BuffersLength()):
        # A vector that leads out of the file makes NumPy refuse it.
        data = model.Buffers(index).DataAsNumpy()
        if size is not None and not isinstance(data, int) and data.nbytes > size:
            raise ValueError(f"buffer {index} is larger than the file")
    names = []
    for index in range(graph.TensorsLength()):
        tensor = graph.Tensors(index)
        if tensor.Buffer() >= model.BuffersLength():
            raise ValueError(f"tensor {index} names a buffer that does not exist")
        tensor.ShapeAsNumpy()
        names.append((tensor.Name() or b"").decode("utf-8") or f"tensor_{index}")
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
    return TFLiteFile(
        model=model,
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


def _with_unique_names(content: bytes) -> Any:
    tree = tflite.ModelT.InitFromPackedBuf(content, 0)
    seen: Counter[bytes] = Counter()
    for tensor in tree.subgraphs[0].tensors:
        name = tensor.name or b""
        if seen[name]:
            tensor.name = name + b"__%d" % seen[name]
        seen[name] += 1
    builder = flatbuffers.Builder(len(content))
    builder.Finish(tree.Pack(builder), b"TFL3")
    return tflite.Model.GetRootAsModel(bytes(builder.Output()), 0)
