"""Models in onnxruntime's own format (.ort): a flatbuffer of the graph that ONNX has as protobuf.

Its tables are read by the classes that onnxruntime ships.  What onnxruntime wrote there beside the
graph, for its own start, is left alone.

Source: onnxruntime/core/flatbuffers/schema/ort.fbs, version 1.32 of the package tried.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto, helper

from adrenoc.base.errors import DependencyError, ModelFormatError
from adrenoc.base.host.extras import pip_install
from adrenoc.base.host.onnx_runtime import import_format_table
from adrenoc.importers.other_formats import EXPORT_AGAIN

_DAMAGE = (
    *(struct.error, IndexError, ValueError, TypeError, AttributeError, OverflowError),
    *(MemoryError, RecursionError),
)
_VALUE, _NAMED = 1, 2
"""Kinds of a dimension that say something."""
_TENSOR = 1
"""The kind of a value that is a tensor."""
_MOST_DEPTH = 16


def read_ort(content: bytes, path: Path) -> onnx.ModelProto:
    """Return the model in the bytes of an .ort file, as ONNX has it.

    Raises:
        ModelFormatError: damaged or cut off.
        DependencyError: onnxruntime is not installed.
    """
    tables = _import_tables()
    try:
        return _Reader(tables, content).read()
    except _DAMAGE as error:
        raise ModelFormatError(
            f"{path} ({len(content)} bytes) is a damaged file of onnxruntime's format, or one of "
            f"another version: {error}",
            hint=f"{EXPORT_AGAIN}, as ONNX: adrenoc compile MODEL.onnx",
        ) from error


def _import_tables() -> ModuleType:
    try:
        return import_format_table("InferenceSession")
    except ImportError as error:
        raise DependencyError(
            f"onnxruntime, which knows its own format (.ort), cannot be imported: {error}",
            hint=f"{pip_install('check')}, or compile the model as ONNX",
        ) from error


class _Reader:
    def __init__(self, tables: ModuleType, content: bytes) -> None:
        self._root = tables.InferenceSession.GetRootAsInferenceSession(content, 0)
        self._left = len(content)
        """Entries of vectors that may still be read: each takes bytes of the file."""

    def read(self) -> onnx.ModelProto:
        stored = self._root.Model()
        if stored is None or stored.Graph() is None:
            raise ValueError("it holds no graph")
        opsets = [
            helper.make_opsetid(_text(one.Domain()), int(one.Version()))
            for one in self._each(stored.OpsetImportLength(), stored.OpsetImport)
        ]
        graph = self._graph(stored.Graph(), "main", 0)
        return helper.make_model(
            graph, opset_imports=opsets, ir_version=int(stored.IrVersion()) or onnx.IR_VERSION
        )

    def _each(self, count: int, at: Callable[[int], Any]) -> Iterator[Any]:
        self._left -= count
        if count < 0 or self._left < 0:
            raise ValueError("its vectors are longer than the file")
        return (at(index) for index in range(count))

    def _texts(self, count: int, at: Callable[[int], Any]) -> list[str]:
        return [_text(one) for one in self._each(count, at)]

    def _graph(self, stored: Any, name: str, depth: int) -> onnx.GraphProto:
        if depth > _MOST_DEPTH:
            raise ValueError("its graphs hold each other")
        known = {
            _text(one.Name()): self._value_info(one)
            for one in self._each(stored.NodeArgsLength(), stored.NodeArgs)
        }
        held = list(self._each(stored.InitializersLength(), stored.Initializers))
        nodes = list(self._each(stored.NodesLength(), stored.Nodes))
        return helper.make_graph(
            [self._node(one, depth) for one in sorted(nodes, key=lambda node: node.Index())],
            name,
            [_known(known, one) for one in self._texts(stored.InputsLength(), stored.Inputs)],
            [_known(known, one) for one in self._texts(stored.OutputsLength(), stored.Outputs)],
            [self._tensor(one) for one in held],
        )

    def _value_info(self, stored: Any) -> onnx.ValueInfoProto:
        info = onnx.ValueInfoProto(name=_text(stored.Name()))
        said = stored.Type()
        if said is None or said.ValueType() != _TENSOR:
            return info
        tensor = import_format_table("TensorTypeAndShape").TensorTypeAndShape()
        tensor.Init(said.Value().Bytes, said.Value().Pos)
        info.type.tensor_type.elem_type = int(tensor.ElemType())
        shape = tensor.Shape()
        if shape is None:
            return info
        info.type.tensor_type.shape.SetInParent()
        for one in self._each(shape.DimLength(), shape.Dim):
            dim, value = info.type.tensor_type.shape.dim.add(), one.Value()
            if value is not None and value.DimType() == _VALUE:
                dim.dim_value = int(value.DimValue())
            elif value is not None and value.DimType() == _NAMED:
                dim.dim_param = _text(value.DimParam())
        return info

    def _node(self, stored: Any, depth: int) -> onnx.NodeProto:
        node = onnx.NodeProto(
            op_type=_text(stored.OpType()), domain=_text(stored.Domain()), name=_text(stored.Name())
        )
        node.input.extend(self._texts(stored.InputsLength(), stored.Inputs))
        node.output.extend(self._texts(stored.OutputsLength(), stored.Outputs))
        for one in self._each(stored.AttributesLength(), stored.Attributes):
            node.attribute.append(self._attribute(one, depth))
        return node

    def _attribute(self, stored: Any, depth: int) -> AttributeProto:
        made = AttributeProto(name=_text(stored.Name()), type=int(stored.Type()))
        kind = AttributeProto.AttributeType.Name(made.type)
        if kind == "FLOAT":
            made.f = float(stored.F())
        elif kind == "INT":
            made.i = int(stored.I())
        elif kind == "STRING":
            made.s = stored.S() or b""
        elif kind == "TENSOR":
            made.t.CopyFrom(self._tensor(stored.T()))
        elif kind == "GRAPH":
            made.g.CopyFrom(self._graph(stored.G(), _text(stored.Name()), depth + 1))
        elif kind == "FLOATS":
            made.floats.extend(map(float, self._each(stored.FloatsLength(), stored.Floats)))
        elif kind == "INTS":
            made.ints.extend(map(int, self._each(stored.IntsLength(), stored.Ints)))
        elif kind == "STRINGS":
            made.strings.extend(self._each(stored.StringsLength(), stored.Strings))
        elif kind == "TENSORS":
            tensors = self._each(stored.TensorsLength(), stored.Tensors)
            made.tensors.extend(self._tensor(one) for one in tensors)
        else:
            raise ValueError(f"an attribute of the type {kind}")
        return made

    def _tensor(self, stored: Any) -> TensorProto:
        made = TensorProto(name=_text(stored.Name()), data_type=int(stored.DataType()))
        made.dims.extend(map(int, self._each(stored.DimsLength(), stored.Dims)))
        if made.data_type == TensorProto.STRING:
            made.string_data.extend(self._each(stored.StringDataLength(), stored.StringData))
            return made
        if stored.ExternalDataOffset() >= 0:
            raise ValueError(f"'{made.name}' lies in a file beside it, which is not covered")
        data = stored.RawDataAsNumpy()
        made.raw_data = b"" if isinstance(data, int) else data.tobytes()
        return made


def _known(infos: dict[str, onnx.ValueInfoProto], name: str) -> onnx.ValueInfoProto:
    if name not in infos:
        raise ValueError(f"nothing is said of '{name}'")
    return infos[name]


def _text(stored: bytes | None) -> str:
    return (stored or b"").decode("utf-8")
