"""TFLite graphs under construction, several in a file, with the signatures that call them.

By the objects of LiteRT's schema module, which knows blocks of few bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

_TYPES = {
    "float16": schema.TensorType.FLOAT16,
    "float32": schema.TensorType.FLOAT32,
    "int4": schema.TensorType.INT4,
    "int8": schema.TensorType.INT8,
    "int32": schema.TensorType.INT32,
    "bool": schema.TensorType.BOOL,
}


class TFLiteFileWriter:
    """A file: graphs, the constants that they share, signatures."""

    def __init__(self) -> None:
        self._buffers = [schema.BufferT()]
        self._kinds: list[str] = []
        self._graphs: list[GraphWriter] = []
        self._signatures: list[Any] = []
        self._stored: dict[int, tuple[np.ndarray, int]] = {}

    def graph(self, name: str) -> GraphWriter:
        """A further graph."""
        self._graphs.append(GraphWriter(file=self, name=name, number=len(self._graphs)))
        return self._graphs[-1]

    def sign(
        self, graph: GraphWriter, inputs: Mapping[str, int], outputs: Mapping[str, int]
    ) -> None:
        """Let callers call a graph by its name, and tensors by these."""
        made = schema.SignatureDefT()
        made.signatureKey, made.subgraphIndex = graph.name, graph.number
        made.inputs, made.outputs = _maps(inputs), _maps(outputs)
        self._signatures.append(made)
        graph.inputs, graph.outputs = list(inputs.values()), list(outputs.values())

    def store(self, value: np.ndarray, dtype: str) -> int:
        """The buffer of a constant; the same array is stored once."""
        if id(value) in self._stored:
            return self._stored[id(value)][1]
        raw = np.ascontiguousarray(value)
        if dtype == "int4":
            codes = raw.reshape(-1).astype(np.uint8) & np.uint8(15)
            raw = codes[0::2] | codes[1::2] << np.uint8(4)
        made = schema.BufferT()
        made.data = np.frombuffer(raw.tobytes(), np.uint8)
        self._buffers.append(made)
        self._stored[id(value)] = (value, len(self._buffers) - 1)
        return len(self._buffers) - 1

    def kind(self, name: str) -> int:
        """The number of an operator's code."""
        if name not in self._kinds:
            self._kinds.append(name)
        return self._kinds.index(name)

    def write(self) -> bytes:
        """The file."""
        model = schema.ModelT()
        model.version, model.buffers = 3, self._buffers
        model.operatorCodes = [_code(name) for name in self._kinds]
        model.subgraphs = [graph.finish() for graph in self._graphs]
        model.signatureDefs = self._signatures
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


@dataclass(kw_only=True)
class GraphWriter:
    """A graph: its methods take and give numbers of tensors."""

    file: TFLiteFileWriter
    name: str
    number: int
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    _tensors: list[Any] = field(default_factory=list)
    _operators: list[Any] = field(default_factory=list)

    def tensor(self, shape: Sequence[int], dtype: str = "float32", *, name: str = "") -> int:
        """A tensor that is given or computed."""
        made = schema.TensorT()
        made.name = (name or f"{self.name}/{len(self._tensors)}").encode()
        made.type, made.shape, made.buffer = _TYPES[dtype], [int(d) for d in shape], 0
        self._tensors.append(made)
        self.shapes.append(tuple(int(d) for d in shape))
        return len(self._tensors) - 1

    def rename(self, tensor: int, name: str) -> None:
        """Give a tensor another name."""
        self._tensors[tensor].name = name.encode()

    def constant(self, value: np.ndarray, dtype: str = "", *, name: str = "") -> int:
        """A tensor that the file holds."""
        index = self.tensor(value.shape, dtype or str(value.dtype), name=name)
        self._tensors[index].buffer = self.file.store(value, dtype or str(value.dtype))
        return index

    def quantised(self, value: np.ndarray, scales: np.ndarray, bits: int, block: int) -> int:
        """Whole numbers of some bits, with a scale for each row, or for each block of one."""
        index = self.constant(value, f"int{bits}")
        made = schema.QuantizationParametersT()
        if block:
            made.detailsType = schema.QuantizationDetails.BlockwiseQuantization
            made.details = schema.BlockwiseQuantizationT()
            made.details.scales = self.constant(scales)
            made.details.zeroPoints, made.details.blockSize = -1, block
        else:
            made.scale = [float(scale) for scale in scales.reshape(-1)]
            made.zeroPoint = [0] * scales.size
        self._tensors[index].quantization = made
        return index

    def op(
        self,
        kind: str,
        inputs: Sequence[int],
        shape: Sequence[int],
        dtype: str = "float32",
        options: str = "",
        called: str = "",
        **values: Any,
    ) -> int:
        """An operator of one result, of which the caller says the shape."""
        node = schema.OperatorT()
        node.opcodeIndex = self.file.kind(kind)
        node.inputs, node.outputs = list(inputs), [self.tensor(shape, dtype, name=called)]
        if options:
            made = vars(schema)[f"{options}T"]()
            for key, value in values.items():
                vars(made)[key] = value
            first = options in vars(schema.BuiltinOptions)
            union = schema.BuiltinOptions if first else schema.BuiltinOptions2
            if first:
                node.builtinOptions, node.builtinOptionsType = made, vars(union)[options]
            else:
                node.builtinOptions2, node.builtinOptions2Type = made, vars(union)[options]
        self._operators.append(node)
        return int(node.outputs[0])

    def reshape(self, x: int, *shape: int) -> int:
        """The same numbers in another shape."""
        form = self.constant(np.array(shape, np.int32))
        dtype = next(n for n, t in _TYPES.items() if t == self._tensors[x].type)
        return self.op("RESHAPE", [x, form], shape, dtype)

    def transpose(self, x: int, *order: int) -> int:
        """With its axes in another order."""
        shape = [self.shapes[x][axis] for axis in order]
        return self.op("TRANSPOSE", [x, self.constant(np.array(order, np.int32))], shape)

    def product(self, a: int, b: int, *, turned: bool = False) -> int:
        """A product of matrices; `turned` takes the second with its last axes exchanged."""
        last = self.shapes[b][-2 if turned else -1]
        shape = (*self.shapes[a][:-1], last)
        options = {"options": "BatchMatMulOptions", "adjX": False, "adjY": turned}
        return self.op("BATCH_MATMUL", [a, b], shape, **options)  # type: ignore[arg-type]

    def by_element(self, kind: str, *operands: int, dtype: str = "float32") -> int:
        """An operator of single elements, whose operands broadcast."""
        shape = np.broadcast_shapes(*(self.shapes[index] for index in operands))
        options = {"ADD": "AddOptions", "MUL": "MulOptions", "SUB": "SubOptions"}.get(kind, "")
        return self.op(kind, operands, shape, dtype, options)

    def finish(self) -> Any:
        """The graph as the schema has it."""
        made = schema.SubGraphT()
        made.tensors, made.operators = self._tensors, self._operators
        made.inputs, made.outputs, made.name = self.inputs, self.outputs, self.name.encode()
        return made


def _maps(names: Mapping[str, int]) -> list[Any]:
    found = []
    for name, index in names.items():
        made = schema.TensorMapT()
        made.name, made.tensorIndex = name, index
        found.append(made)
    return found


def _code(name: str) -> Any:
    made = schema.OperatorCodeT()
    made.builtinCode = vars(schema.BuiltinOperator)[name]
    made.deprecatedBuiltinCode = min(made.builtinCode, 127)
    made.version = {"BROADCAST_TO": 2, "FULLY_CONNECTED": 9, "BATCH_MATMUL": 2}.get(name, 1)
    return made
