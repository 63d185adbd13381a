"""Reads a TFLite file whole, and proves that it is sound before anything trusts its offsets.

Flatbuffers are read lazily: a damaged file fails, if at all, somewhere in the middle of its use.
Offsets may lead to one place many times: a table that a million entries name is a million graphs,
operators or constants to who walks them, from a file of a few megabytes; in flexbuffers, lists
within lists double with each level.

LiteRT rounds the data of models of dynamic range (floats by int8 weights) to 8 bits, a batch row at
a time.  The GPU keeps the data as they are, nearer to the model that was trained and up to some
percent from LiteRT: a check against that would tell nothing of the kernels, so LiteRT is given such
models with their weights as floats.

Source: TFLite schema version 3; LiteRT's hybrid kernels.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tflite

from adrenoc.base.errors import ModelFormatError, RefusedError
from adrenoc.importers.tflite.stored import (
    BlockQuantisation,
    builtin_code,
    decode_stored,
    dense_of,
    number_names,
    read_behind,
    read_blocks,
    read_scales,
    serialise,
)

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
    RecursionError,
)

_NUMPY = (
    *("bool", "float16", "float32", "float64", "int4", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
)
_DTYPES = {name.upper(): name for name in _NUMPY}
"""The schema's name -> NumPy's."""
_POINTER_BYTES = 8
_MOST_AXES = 16
_MOST_ELEMENTS = 2**30
"""Of one tensor: kernels count in 32 bits."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TensorInfo:
    """A tensor of the file.

    `dtype` is NumPy's name, or the schema's where NumPy has none (STRING, RESOURCE, ...).  Where
    `scales` holds something, real = scale * (stored - zero), with one scale for all or for each
    index of `axis`.  `value` is what a constant stores."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    value: np.ndarray | None = None
    scales: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    zeros: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    axis: int = 0
    block: int = 0
    """Elements along the last axis that share a scale, of [N, blocks]; 0 of other forms."""
    is_variable: bool = False
    open_axes: frozenset[int] = frozenset()
    """The axes whose extents the file leaves open; `shape` has what the converter put there."""

    def admits(self, shape: tuple[int, ...]) -> bool:
        """Return whether the tensor may have `shape`: it is as the file says but for open axes."""
        if len(shape) != len(self.shape):
            return False
        pairs = enumerate(zip(shape, self.shape, strict=True))
        return all(a == b or (axis in self.open_axes and a > 0) for axis, (a, b) in pairs)

    @property
    def is_quantised(self) -> bool:
        """Return whether integers stand for real numbers."""
        # int32 carries scales on biases: they follow from those of data and weights.
        return self.scales.size > 0 and self.dtype in ("int4", "int8", "uint8", "int16")

    @property
    def scale(self) -> float:
        """Return the one scale of a tensor."""
        if self.scales.size != 1:
            raise RefusedError(f"'{self.name}' has {self.scales.size} scales, expected one")
        return float(self.scales[0])

    @property
    def zero(self) -> int:
        """Return the one zero point of a tensor."""
        return int(self.zeros[0]) if self.zeros.size else 0

    def lay_along(self, values: np.ndarray) -> np.ndarray:
        """Return scales or zero points in a shape that meets the tensor's."""
        if self.block and values.size > 1:
            return np.repeat(values.reshape(len(self.scales), -1), self.block, axis=-1)
        if values.size <= 1:  # none is zero
            return values.sum()
        return values.reshape([-1 if a == self.axis else 1 for a in range(len(self.shape))])


@dataclass(frozen=True, kw_only=True, eq=False)
class OperatorInfo:
    """A node: its kind (a custom operator's own name), and tensors by index, -1 for none."""

    kind: str
    custom: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    intermediates: tuple[int, ...] = ()
    """Tensors that say with their scales how an operator rounds within."""
    version: int = 1
    stored: bytes = b""
    """Of a custom operator: its options as they lie in the file, where they are no map."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GraphInfo:
    """A graph of the file: operators in order, over tensors named by index."""

    name: str
    tensors: tuple[TensorInfo, ...]
    operators: tuple[OperatorInfo, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def label(self, operator: OperatorInfo) -> str:
        """Return how a message names an operator: by the tensor that it makes."""
        return f"'{self.tensors[operator.outputs[0]].name}'" if operator.outputs else "?"


@dataclass(frozen=True, kw_only=True, eq=False)
class SignatureInfo:
    """A way to call the file: which graph computes it, and its tensors by the caller's names."""

    key: str
    graph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class TFLiteFile:
    """A verified model; `entry` is the number of its main graph."""

    graphs: tuple[GraphInfo, ...]
    signatures: tuple[SignatureInfo, ...] = ()
    """The ways in which the file may be called, where it lists any."""
    entry: int = 0

    @property
    def main(self) -> GraphInfo:
        """Return the graph that a run computes."""
        return self.graphs[self.entry]


def read_tflite(path: Path, content: bytes) -> TFLiteFile:
    """Read and verify the `content` of the file at `path`. Raises ModelFormatError where it is
    damaged, cut off, without a graph, or quantised by no scale."""
    hint = "convert or download the model again"
    try:
        model = tflite.Model.GetRootAsModel(content, 0)
        found = _Reader(model, content).read()
    except _DAMAGE as error:
        raise ModelFormatError(
            f"{path} ({len(content)} bytes) is damaged or cut off: {error}", hint=hint
        ) from error
    if not found.main.operators or not found.main.outputs:
        raise ModelFormatError(
            f"{path} holds a graph with {len(found.main.operators)} operators and "
            f"{len(found.main.outputs)} outputs; expected at least one of each",
            hint=hint,
        )
    for graph in found.graphs:
        for info in graph.tensors:
            _refuse_scales(path, info)
    return found


def _refuse_scales(path: Path, info: TensorInfo) -> None:
    """Raise ModelFormatError where a scale of a quantised tensor measures nothing. Scales of blocks
    are constants of the file as any other: formats with negative ones exist."""
    bad = np.flatnonzero(~(np.isfinite(info.scales) & (info.scales > 0)))
    if not info.is_quantised or info.block or not bad.size:
        return
    where = f" at channel {bad[0]}" if info.scales.size > 1 else ""
    raise ModelFormatError(
        f"{path}: the quantised tensor '{info.name}' has the scale {info.scales[bad[0]]:g}{where}; "
        "expected finite scales above 0",
        hint="quantise the model again: its converter wrote a range that holds no number",
    )


class _Reader:
    def __init__(self, model: Any, content: bytes) -> None:
        self.model, self.content, self.size = model, content, len(content)
        self.budget = ReadLimits(self.size)

    def read(self) -> TFLiteFile:
        count = self.budget.tables(self.model.SubgraphsLength())
        if count < 1:
            raise ValueError("it holds no graph")
        stored = [self.model.Subgraphs(i) for i in range(count)]
        for graph in stored:  # all, before the first is read: a small file can list one very often
            self.budget.tables(graph.TensorsLength() + graph.OperatorsLength())
        graphs = tuple(map(self._graph, stored))
        count = self.budget.tables(self.model.SignatureDefsLength())
        signatures = (self._signature(self.model.SignatureDefs(i), graphs) for i in range(count))
        return TFLiteFile(graphs=graphs, signatures=tuple(signatures))

    def _signature(self, stored: Any, graphs: tuple[GraphInfo, ...]) -> SignatureInfo:
        key, number = (stored.SignatureKey() or b"").decode("utf-8"), stored.SubgraphIndex()
        if number >= len(graphs):
            raise ValueError(f"the signature '{key}' is of graph {number}; there are {len(graphs)}")
        tensors: list[dict[str, int]] = []
        for length, at in (
            (stored.InputsLength(), stored.Inputs),
            (stored.OutputsLength(), stored.Outputs),
        ):
            maps = [at(i) for i in range(self.budget.tables(length))]
            indices = _indices([m.TensorIndex() for m in maps], len(graphs[number].tensors))
            names = ((m.Name() or b"").decode("utf-8") for m in maps)
            tensors.append(dict(zip(names, indices, strict=True)))
        return SignatureInfo(key=key, graph=number, inputs=tensors[0], outputs=tensors[1])

    @cached_property
    def buffers(self) -> list[np.ndarray | None]:
        found: list[np.ndarray | None] = []
        for index in range(self.budget.tables(self.model.BuffersLength())):
            # A vector that leads out of the file makes NumPy refuse it.
            data = self.model.Buffers(index).DataAsNumpy()
            if isinstance(data, int):
                data = read_behind(self.model.Buffers(index), self.content)
            empty = isinstance(data, int) or data.size == 0
            if not empty and data.nbytes > self.size:
                raise ValueError(f"buffer {index} is larger than the file")
            found.append(None if empty else data)
        return found

    def _graph(self, graph: Any) -> GraphInfo:
        tensors: list[TensorInfo] = []
        blocks: dict[int, BlockQuantisation] = {}
        listed = [graph.Tensors(at) for at in range(graph.TensorsLength())]
        names = number_names((tensor.Name() or b"").decode("utf-8") for tensor in listed)
        for index, (tensor, name) in enumerate(zip(listed, names, strict=True)):
            if (found := read_blocks(tensor.Quantization())) is not None:
                blocks[index] = found
            tensors.append(self._tensor(tensor, index, name))
        for index, one in blocks.items():
            info, values = tensors[index], [each.value for each in tensors]
            scales, zeros = read_scales(info.name, info.shape, one, values)
            tensors[index] = replace(info, scales=scales, zeros=zeros, block=one.block, axis=0)
        count, known = graph.OperatorsLength(), len(tensors)
        operators = tuple(self._operator(graph.Operators(i), known) for i in range(count))
        inputs = _indices(graph.InputsAsNumpy(), len(tensors), least=0)
        outputs = _indices(graph.OutputsAsNumpy(), len(tensors), least=0)
        made = {*inputs, *(index for operator in operators for index in operator.outputs)}
        for index in outputs:
            if index not in made and tensors[index].value is None:
                raise ValueError(f"its output '{tensors[index].name}' is computed by nothing")
        return GraphInfo(
            name=(graph.Name() or b"").decode("utf-8"),
            tensors=tuple(tensors),
            operators=operators,
            inputs=inputs,
            outputs=outputs,
        )

    def _tensor(self, tensor: Any, index: int, name: str) -> TensorInfo:
        if tensor.Buffer() >= len(self.buffers):
            raise ValueError(f"tensor {index} names a buffer that does not exist")
        shape = tuple(int(d) for d in _array(tensor.ShapeAsNumpy()))
        kind = _TYPES.get(tensor.Type(), f"type {tensor.Type()}")
        dtype = _DTYPES.get(kind, kind)
        if len(shape) > _MOST_AXES or math.prod(abs(d) for d in shape) > _MOST_ELEMENTS:
            raise ValueError(f"'{name}' has the shape {list(shape)}")
        stored, value = self.buffers[tensor.Buffer()], None
        if stored is not None and dtype in _NUMPY:
            if tensor.Sparsity() is not None:
                self.budget.memory(math.prod(shape))  # before room is made for it
                value = dense_of(tensor.Sparsity(), stored, dtype, shape)
            else:
                value = decode_stored(stored, dtype, shape, name)
            self.budget.memory(value.nbytes)
        quantisation = tensor.Quantization()
        scales, zeros, axis = np.zeros(0, np.float32), np.zeros(0, np.int64), 0
        if quantisation is not None:
            scales = _array(quantisation.ScaleAsNumpy()).astype(np.float32)
            zeros = _array(quantisation.ZeroPointAsNumpy()).astype(np.int64)
            self.budget.memory(scales.nbytes + zeros.nbytes)
            axis = int(quantisation.QuantizedDimension())
            if scales.size > 1 and (axis >= len(shape) or shape[axis] != scales.size):
                raise ValueError(f"'{name}' has {scales.size} scales, which fit none of its axes")
        return TensorInfo(
            name=name,
            shape=shape,
            dtype=dtype,
            value=value,
            scales=scales,
            zeros=zeros,
            axis=axis,
            is_variable=bool(tensor.IsVariable()),
            open_axes=frozenset(
                a for a, d in enumerate(_array(tensor.ShapeSignatureAsNumpy())) if d < 0
            ),
        )

    def _operator(self, node: Any, tensor_count: int) -> OperatorInfo:
        self.budget.memory(_POINTER_BYTES * (node.InputsLength() + node.OutputsLength()))
        code = self.model.OperatorCodes(node.OpcodeIndex())
        number = max(code.DeprecatedBuiltinCode(), builtin_code(code))
        custom = number == tflite.BuiltinOperator.CUSTOM
        kind = code.CustomCode().decode() if custom else _KINDS.get(number, f"operator {number}")
        stored = b""
        if custom and not isinstance(found := node.CustomOptionsAsNumpy(), int):
            stored = bytes(found)
        options = custom_options(stored) if custom else self._options(node)
        return OperatorInfo(
            kind=kind,
            custom=custom,
            inputs=_indices(node.InputsAsNumpy(), tensor_count),
            outputs=_indices(node.OutputsAsNumpy(), tensor_count, least=0),
            options=options,
            intermediates=_indices(node.IntermediatesAsNumpy(), tensor_count),
            version=int(code.Version()),
            stored=b"" if options else stored,
        )

    def _options(self, node: Any) -> dict[str, Any]:
        """Return all options of a built-in operator by name; a list for a vector."""
        found: dict[str, Any] = {}
        unions = (
            (node.BuiltinOptions(), _OPTIONS.get(node.BuiltinOptionsType())),
            (node.BuiltinOptions2(), _OPTIONS2.get(node.BuiltinOptions2Type())),
        )
        for table, name in unions:
            if table is None or name in (None, "NONE"):
                continue
            reader = getattr(tflite, str(name))()
            reader.Init(table.Bytes, table.Pos)
            found.update(self._fields(reader, str(name)))
        return found

    def _fields(self, reader: Any, kind: str) -> dict[str, Any]:
        scalars, vectors = _names_of(kind)
        found: dict[str, Any] = {name: getattr(reader, name)() for name in scalars}
        for name in vectors:
            count = getattr(reader, f"{name}Length")()
            self.budget.memory(_POINTER_BYTES * count)
            found[name] = [getattr(reader, name)(i) for i in range(count)]
        return found


@cache
def _names_of(kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the fields of a kind of table: those of one value, and vectors."""
    has = vars(getattr(tflite, kind))
    skipped = ("Init", "AsNumpy", "IsNone", "Length", "BufferHasIdentifier")
    names = [n for n in has if n[0].isupper() and not n.endswith(skipped)]
    names = [name for name in names if not name.startswith("GetRootAs")]
    vectors = {n.removesuffix("Length") for n in has if n.endswith("Length")}
    return (
        tuple(name for name in names if name not in vectors),
        tuple(name for name in names if name in vectors),
    )


_KINDS = {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}
_TYPES = {v: k for k, v in vars(tflite.TensorType).items() if isinstance(v, int)}
_OPTIONS = {v: k for k, v in vars(tflite.BuiltinOptions).items() if isinstance(v, int)}
_OPTIONS2 = {v: k for k, v in vars(tflite.BuiltinOptions2).items() if isinstance(v, int)}


def _array(found: Any) -> np.ndarray:
    return np.zeros(0, np.int64) if isinstance(found, int) else np.asarray(found)


def _indices(found: Any, count: int, *, least: int = -1) -> tuple[int, ...]:
    """Return numbers of tensors; -1 is one that is left out."""
    indices = tuple(int(i) for i in _array(found))
    for index in indices:
        if not least <= index < count:
            raise ValueError(f"tensor {index} does not exist; there are {count}")
    return indices


MOST_TABLES = 200_000
"""Graphs, tensors, operators and buffers in all."""

_FREE_BYTES = 256 << 20
_MOST_TIMES = 16
"""What vectors and constants may take of memory, of the file's size: converters do share some."""

_MOST_STORED_BYTES = 256 << 10
_MOST_ITEMS = 10_000
_MOST_DEPTH = 16
"""Of the options of a custom operator."""


class ReadLimits:
    """What reading a file of `size` bytes may still take."""

    def __init__(self, size: int) -> None:
        self._tables = MOST_TABLES
        self._bytes = max(_FREE_BYTES, _MOST_TIMES * size)

    def tables(self, count: int) -> int:
        """Count so many tables that are read, and hand back their count. Raises ValueError where
        there are more than any model has."""
        self._tables -= count
        if self._tables < 0:
            raise ValueError(f"it has more than {MOST_TABLES} graphs, tensors, operators, buffers")
        return count

    def memory(self, count: int) -> None:
        """Count so many bytes that are taken for what the file holds. Raises ValueError where its
        tables name the same bytes again and again."""
        self._bytes -= count
        if self._bytes < 0:
            raise ValueError("its tables stand for far more bytes than it has")


def custom_options(stored: bytes) -> dict[str, Any]:
    """Return the options of a custom operator, a map in flexbuffers; none where it is something
    else. Raises ValueError where lists and maps hold each other too deeply or too often."""
    from flatbuffers import flexbuffers

    if not stored:
        return {}
    if len(stored) > _MOST_STORED_BYTES:
        raise ValueError(f"a custom operator has options of {len(stored)} bytes")
    try:
        root = flexbuffers.GetRoot(stored)
    except ValueError:  # too few bytes for one
        return {}
    found = _value(root, [_MOST_ITEMS], 0)
    return found if isinstance(found, dict) else {}


def _value(place: Any, left: list[int], depth: int) -> Any:
    """Return a value of plain Python, at a place; `left` counts what may still be read."""
    left[0] -= 1
    if left[0] < 0 or depth > _MOST_DEPTH:
        raise ValueError("the options of a custom operator hold each other")
    if place.IsMap:
        held = place.AsMap
        _check_count(len(held), left)
        keys, values = held.Keys, held.Values
        return {
            keys[index].AsKey: _value(values[index], left, depth + 1) for index in range(len(held))
        }
    for is_one, how in (
        (place.IsVector, "AsVector"),
        (place.IsTypedVector, "AsTypedVector"),
        (place.IsFixedTypedVector, "AsFixedTypedVector"),
    ):
        if not is_one:
            continue
        held = getattr(place, how)
        _check_count(len(held), left)
        return [_value(held[index], left, depth + 1) for index in range(len(held))]
    if place.IsString:  # TensorFlow's own operators keep a serialised node there, not text
        return bytes(place.AsStringBytes).decode("utf-8", errors="replace")
    return place.Value


def _check_count(count: int, left: list[int]) -> None:
    if count > left[0]:
        raise ValueError(f"the options of a custom operator hold {count} values")


_DATA = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL"), 0),
    **dict.fromkeys(("SVDF", "RNN", "UNIDIRECTIONAL_SEQUENCE_RNN"), 0),
    **dict.fromkeys(("BIDIRECTIONAL_SEQUENCE_RNN", "LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"), 0),
    "BIDIRECTIONAL_SEQUENCE_LSTM": 0,
    "TRANSPOSE_CONV": 2,
}
"""Operators that take data in float with weights in 4 or 8 bits -> the input that is the data."""


def widen_weights(content: bytes, schema: Any) -> bytes | None:
    """Return the model with the weights of hybrid operators as floats; None where it has none.
    `schema` is LiteRT's module of the file's schema."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    for buffer in model.buffers:
        held = buffer.data is not None and len(buffer.data) > 0
        if buffer.offset > 1 and not held:  # behind the tables, which are written anew
            buffer.data = np.frombuffer(content, np.uint8, buffer.size, buffer.offset)
        buffer.offset = buffer.size = 0
    data = {getattr(schema.BuiltinOperator, name): index for name, index in _DATA.items()}
    codes = [max(c.builtinCode, c.deprecatedBuiltinCode) for c in model.operatorCodes]
    changed = False
    read = read_tflite(Path("its model"), content)
    for graph, known in zip(model.subgraphs, read.graphs, strict=True):
        floats: dict[int, int] = {}
        for operator in graph.operators:
            code, inputs = codes[operator.opcodeIndex], list(operator.inputs)
            if code not in data or known.tensors[inputs[data[code]]].dtype != "float32":
                continue
            for index in set(inputs) - {-1, *floats}:
                info, is_sparse = known.tensors[index], graph.tensors[index].sparsity is not None
                is_narrow = info.is_quantised and info.dtype in ("int4", "int8")
                if is_narrow and info.value is not None and not is_sparse:
                    floats[index] = _add_floats(model, graph, info, schema)
            operator.inputs = [floats.get(index, index) for index in inputs]
            changed |= operator.inputs != inputs
    return serialise(model) if changed else None


def _add_floats(model: Any, graph: Any, info: TensorInfo, schema: Any) -> int:
    """Add what a constant stands for as a tensor; returns its number."""
    zeros, scales = (info.lay_along(part).astype(np.float32) for part in (info.zeros, info.scales))
    real = (np.asarray(info.value) - zeros) * scales
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(real.astype(np.float32).tobytes(), np.uint8)
    model.buffers.append(buffer)
    made = schema.TensorT()
    made.name = f"{info.name}/floats".encode()
    made.type, made.shape = int(schema.TensorType.FLOAT32), list(info.shape)
    made.buffer = len(model.buffers) - 1
    graph.tensors.append(made)
    return len(graph.tensors) - 1
