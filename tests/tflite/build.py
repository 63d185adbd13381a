"""Small TFLite models of a few operators, through the object interface of the schema.

The shapes of what operators make are asked of LiteRT: a case states its inputs and options alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import interpreter as litert
from ai_edge_litert import schema_py_generated as schema

TYPES = {
    "float32": schema.TensorType.FLOAT32,
    "float16": schema.TensorType.FLOAT16,
    "int4": schema.TensorType.INT4,
    "int8": schema.TensorType.INT8,
    "uint8": schema.TensorType.UINT8,
    "int16": schema.TensorType.INT16,
    "uint16": schema.TensorType.UINT16,
    "int32": schema.TensorType.INT32,
    "uint32": schema.TensorType.UINT32,
    "int64": schema.TensorType.INT64,
    "bool": schema.TensorType.BOOL,
    "complex64": schema.TensorType.COMPLEX64,
    "string": schema.TensorType.STRING,
    "resource": schema.TensorType.RESOURCE,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class T:
    """A tensor of a case: its dtype, its quantisation, and data where it is given."""

    dtype: str = "float32"
    shape: tuple[int, ...] = ()
    data: np.ndarray | None = None
    is_constant: bool = False
    scales: Sequence[float] = ()
    zeros: Sequence[int] = ()
    axis: int = 0
    is_variable: bool = False
    is_sparse: bool = False


def constant(value: object, dtype: str = "int32") -> T:
    return T(dtype=dtype, data=np.array(value, dtype), is_constant=True)


@dataclass(kw_only=True)
class GraphBuilder:
    """One graph of a model under construction."""

    model: ModelBuilder
    tensors: list[Any] = field(default_factory=list)
    operators: list[Any] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    feeds: list[np.ndarray] = field(default_factory=list)
    name: str = "main"

    def add(self, tensor: T | None, name: str = "") -> int:
        """Put a tensor into the graph; -1 for none."""
        if tensor is None:
            return -1
        made = schema.TensorT()
        made.name = (name or f"t{len(self.tensors)}").encode()
        made.type = TYPES[tensor.dtype]
        shape = tensor.shape if tensor.data is None else tensor.data.shape
        made.shape = [int(d) for d in shape]
        made.isVariable = tensor.is_variable
        made.buffer = 0
        if tensor.is_constant and tensor.data is not None:
            made.buffer = self.model.buffer(tensor)
        if tensor.scales:
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale = [float(s) for s in tensor.scales]
            made.quantization.zeroPoint = [int(z) for z in tensor.zeros] or [0] * len(tensor.scales)
            made.quantization.quantizedDimension = tensor.axis
        if tensor.is_sparse and tensor.data is not None:
            made.sparsity, values = compressed_rows(tensor.data)
            made.buffer = self.model.buffer(T(data=values))
        self.tensors.append(made)
        index = len(self.tensors) - 1
        if not tensor.is_constant and tensor.data is not None:
            self.inputs.append(index)
            self.feeds.append(tensor.data)
        return index

    def op(
        self,
        kind: str,
        inputs: Sequence[int],
        results: Sequence[T],
        options: str = "",
        values: dict[str, Any] | None = None,
        custom: bytes | None = None,
        intermediates: Sequence[int] = (),
    ) -> list[int]:
        """Add an operator; returns the indices of its results."""
        node = schema.OperatorT()
        node.opcodeIndex = self.model.code(kind, custom is not None)
        node.inputs = list(inputs)
        node.outputs = [self.add(r) for r in results]
        node.intermediates = list(intermediates) or None
        if options:
            made = getattr(schema, f"{options}T")()
            for key, value in (values or {}).items():
                if not hasattr(made, key):
                    raise KeyError(f"{options} has no {key}")
                setattr(made, key, value)
            if hasattr(schema.BuiltinOptions, options):
                node.builtinOptions = made
                node.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            else:
                node.builtinOptions2 = made
                node.builtinOptions2Type = getattr(schema.BuiltinOptions2, options)
        if custom is not None:
            node.customOptions = list(custom)
        self.operators.append(node)
        return list(node.outputs)


class ModelBuilder:
    def __init__(self) -> None:
        self._buffers = [schema.BufferT()]
        self._codes: list[tuple[str, bool]] = []
        self._stored: dict[tuple[int, str], tuple[np.ndarray, int]] = {}
        self._signatures: list[Any] = []
        self.graphs: list[GraphBuilder] = []

    def graph(self, name: str = "main") -> GraphBuilder:
        """A further graph; the first is the main one."""
        self.graphs.append(GraphBuilder(model=self, name=name))
        return self.graphs[-1]

    def sign(
        self, graph: GraphBuilder, inputs: Mapping[str, int], outputs: Mapping[str, int]
    ) -> None:
        """Let callers call a graph by its name, and tensors by these."""
        made = schema.SignatureDefT()
        made.signatureKey, made.subgraphIndex = graph.name, self.graphs.index(graph)
        made.inputs, made.outputs = _maps(inputs), _maps(outputs)
        self._signatures.append(made)
        graph.inputs, graph.outputs = list(inputs.values()), list(outputs.values())

    def buffer(self, tensor: T) -> int:
        """Store the data of a constant; the same array is stored once."""
        assert tensor.data is not None
        known = self._stored.get((id(tensor.data), tensor.dtype))
        if known is not None:
            return known[1]
        made = schema.BufferT()
        data = np.ascontiguousarray(tensor.data)
        raw = data.tobytes()
        if tensor.dtype == "int4":
            flat = np.append(data.reshape(-1), 0)[: (data.size + 1) // 2 * 2].astype(np.uint8) & 15
            raw = (flat[0::2] | flat[1::2] << 4).astype(np.uint8).tobytes()
        made.data = np.frombuffer(raw, np.uint8)
        self._buffers.append(made)
        self._stored[id(tensor.data), tensor.dtype] = tensor.data, len(self._buffers) - 1
        return len(self._buffers) - 1

    def code(self, kind: str, custom: bool) -> int:
        """The number of an operator's code."""
        if (kind, custom) not in self._codes:
            self._codes.append((kind, custom))
        return self._codes.index((kind, custom))

    def write(self, versions: Mapping[str, int] | None = None) -> bytes:
        """The file; `versions` are those of operators that are not of the first."""
        model = schema.ModelT()
        model.version = 3
        model.buffers = self._buffers
        model.operatorCodes = [_code(*code, **(versions or {})) for code in self._codes]
        model.subgraphs = [_graph(g) for g in self.graphs]
        model.signatureDefs = self._signatures or None
        writer = flatbuffers.Builder(1024)
        writer.Finish(model.Pack(writer), b"TFL3")
        return bytes(writer.Output())

    def finish(self) -> tuple[bytes, list[np.ndarray]]:
        """The file with the shapes that LiteRT finds, and what LiteRT computes."""
        run = start(self.write())
        main = self.graphs[0]
        for detail, feed in zip(run.get_input_details(), main.feeds, strict=True):
            run.set_tensor(detail["index"], feed)
        run.invoke()
        for index, tensor in enumerate(main.tensors):
            if tensor.buffer == 0 and index not in main.inputs:
                try:
                    tensor.shape = [int(d) for d in run.get_tensor(index).shape]
                except ValueError:  # what LiteRT does not keep, or does not compute
                    continue
        return self.write(), [
            np.array(run.get_tensor(d["index"])) for d in run.get_output_details()
        ]


def compressed_rows(dense: np.ndarray) -> tuple[Any, np.ndarray]:
    """A matrix as TFLite stores a sparse one: rows dense, columns compressed."""
    found = schema.SparsityParametersT()
    found.traversalOrder, found.blockMap = [0, 1], []
    rows, columns = schema.DimensionMetadataT(), schema.DimensionMetadataT()
    rows.format, rows.denseSize = schema.DimensionType.DENSE, dense.shape[0]
    columns.format = schema.DimensionType.SPARSE_CSR
    segments, indices = schema.Int32VectorT(), schema.Int32VectorT()
    segments.values = [0, *np.cumsum((dense != 0).sum(1))]
    indices.values = list(np.nonzero(dense)[1])
    columns.arraySegments, columns.arrayIndices = segments, indices
    columns.arraySegmentsType = columns.arrayIndicesType = schema.SparseIndexVector.Int32Vector
    found.dimMetadata = [rows, columns]
    return found, dense[dense != 0]


def write_operator(
    folder: Path,
    kind: str,
    operands: Sequence[T],
    result: T,
    options: str = "",
    values: dict[str, Any] | None = None,
    custom: bytes | None = None,
) -> Path:
    """Write a model of one operator, whose operands are called x, y and so on."""
    model = ModelBuilder()
    main = model.graph()
    inputs = [main.add(tensor, "xyzuvw"[i]) for i, tensor in enumerate(operands)]
    main.outputs = main.op(kind, inputs, [result], options, values, custom)
    path = folder / "model.tflite"
    path.write_bytes(model.write())
    return path


def start(content: bytes, *, plain: bool = True):
    """LiteRT on a model, by its plain kernels or as it runs models by default."""
    types = litert.OpResolverType
    made = litert.Interpreter(
        model_content=content,
        experimental_preserve_all_tensors=True,
        experimental_op_resolver_type=types.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        if plain
        else types.AUTO,
    )
    made.allocate_tensors()
    return made


def _code(kind: str, custom: bool, **versions: int):
    made = schema.OperatorCodeT()
    number = schema.BuiltinOperator.CUSTOM if custom else getattr(schema.BuiltinOperator, kind)
    made.builtinCode = number
    made.deprecatedBuiltinCode = min(number, 127)
    made.customCode = kind.encode() if custom else None
    made.version = versions.get(kind, 1 if custom else VERSIONS.get(kind, 1))
    return made


def _maps(names: Mapping[str, int]) -> list[Any]:
    found = []
    for name, index in names.items():
        made = schema.TensorMapT()
        made.name, made.tensorIndex = name.encode(), index
        found.append(made)
    return found


def _graph(graph: GraphBuilder):
    made = schema.SubGraphT()
    made.tensors, made.operators = graph.tensors, graph.operators
    made.inputs, made.outputs = graph.inputs, graph.outputs
    made.name = graph.name.encode()
    return made


VERSIONS: dict[str, int] = {"BROADCAST_TO": 2}
"""Operators that LiteRT asks a version of."""
