"""TFLite graphs under construction: operators of one result, whose shape the caller says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.tflite.build import TYPES, GraphBuilder, ModelBuilder, T

_VERSIONS = {"FULLY_CONNECTED": 9, "BATCH_MATMUL": 2}


class TFLiteFileWriter(ModelBuilder):
    """A file: graphs, the constants that they share, signatures."""

    def graph(self, name: str = "main") -> GraphWriter:
        made = GraphWriter(model=self, name=name)
        self.graphs.append(made)
        return made

    def write(self, versions: Mapping[str, int] | None = None) -> bytes:
        return super().write({**_VERSIONS, **(versions or {})})


@dataclass(kw_only=True)
class GraphWriter(GraphBuilder):
    """A graph: its methods take and give numbers of tensors."""

    shapes: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, tensor: T | None, name: str = "") -> int:
        """Put a tensor into the graph; its shape is noted."""
        index = super().add(tensor, name or f"{self.name}/{len(self.tensors)}")
        if tensor is not None:
            self.shapes.append(tuple(self.tensors[index].shape))
        return index

    def tensor(self, shape: Sequence[int], dtype: str = "float32", *, name: str = "") -> int:
        """A tensor that is given or computed."""
        return self.add(T(dtype=dtype, shape=tuple(shape)), name)

    def rename(self, tensor: int, name: str) -> None:
        self.tensors[tensor].name = name.encode()

    def constant(self, value: np.ndarray, dtype: str = "", *, name: str = "") -> int:
        """A tensor that the file holds."""
        return self.add(T(dtype=dtype or str(value.dtype), data=value, is_constant=True), name)

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
        self.tensors[index].quantization = made
        return index

    def emit(
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
        result = T(dtype=dtype, shape=tuple(shape))
        (index,) = self.op(kind, inputs, [result], options, values)
        if called:
            self.rename(index, called)
        return index

    def reshape(self, x: int, *shape: int) -> int:
        """The same numbers in another shape."""
        form = self.constant(np.array(shape, np.int32))
        dtype = next(n for n, t in TYPES.items() if t == self.tensors[x].type)
        return self.emit("RESHAPE", [x, form], shape, dtype)

    def transpose(self, x: int, *order: int) -> int:
        """With its axes in another order."""
        shape = [self.shapes[x][axis] for axis in order]
        return self.emit("TRANSPOSE", [x, self.constant(np.array(order, np.int32))], shape)

    def product(self, a: int, b: int, *, turned: bool = False) -> int:
        """A product of matrices; `turned` takes the second with its last axes exchanged."""
        shape = (*self.shapes[a][:-1], self.shapes[b][-2 if turned else -1])
        return self.emit(
            "BATCH_MATMUL", [a, b], shape, options="BatchMatMulOptions", adjX=False, adjY=turned
        )

    def by_element(self, kind: str, *operands: int, dtype: str = "float32") -> int:
        """An operator of single elements, whose operands broadcast."""
        shape = np.broadcast_shapes(*(self.shapes[index] for index in operands))
        options = {"ADD": "AddOptions", "MUL": "MulOptions", "SUB": "SubOptions"}.get(kind, "")
        return self.emit(kind, operands, shape, dtype, options)
