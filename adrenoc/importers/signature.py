"""What a model file says of its inputs and outputs: names, axes, dtypes; loads no TVM."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adrenoc.errors import ModelFormatError
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.onnx_wire import TooManyNodesError, WireError, graph_ports

Extent = int | str | None
"""The extent of an axis: fixed, by a name that several share, or not said."""


@dataclass(frozen=True, kw_only=True)
class Port:
    """An input or an output; `axes` is None where the file does not say how many there are."""

    name: str
    axes: tuple[Extent, ...] | None
    dtype: str


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The inputs that a user gives, constants left out, and the outputs."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


UNKNOWN = Signature(inputs=(), outputs=())
"""The signature of a damaged model, of which the importer says what is wrong."""


def read_signature(model: Path) -> Signature:
    """Read the inputs and outputs of a model file.

    Raises:
        ModelNotFoundError, ModelFormatError: see `find_model_files`.
    """
    files = find_model_files(model)
    if files.format == "onnx":
        return _of_onnx(files.paths[0])
    from adrenoc.importers.tflite.file import TensorInfo, read_tflite

    def port(info: TensorInfo) -> Port:
        axes = enumerate(info.shape)
        return Port(
            name=info.name,
            axes=tuple(None if at in info.open_axes else extent for at, extent in axes),
            dtype=info.dtype,
        )

    try:
        main = read_tflite(files.paths[0], files.read()[0]).main
    except ModelFormatError:
        return UNKNOWN
    return Signature(
        inputs=tuple(port(main.tensors[i]) for i in main.inputs),
        outputs=tuple(port(main.tensors[i]) for i in main.outputs),
    )


def _of_onnx(path: Path) -> Signature:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        found = graph_ports(path)
        inputs = [onnx.ValueInfoProto.FromString(value) for value in found.inputs]
        outputs = [onnx.ValueInfoProto.FromString(value) for value in found.outputs]
    except (WireError, TooManyNodesError, DecodeError):
        return UNKNOWN
    return Signature(
        inputs=_ports(value for value in inputs if value.name not in found.constants),
        outputs=_ports(outputs),
    )


def _ports(values: Iterable[Any]) -> tuple[Port, ...]:
    return tuple(
        Port(name=value.name, axes=_axes(value), dtype=_dtype(value.type.tensor_type.elem_type))
        for value in values
    )


def _axes(value: Any) -> tuple[Extent, ...] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(map(extent_of, tensor.shape.dim))


def extent_of(dim: Any) -> Extent:
    """The extent of a dimension of ONNX; names without a letter, as `?` and `-1`, name nothing."""
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    name = str(dim.dim_param)
    return name if any(map(str.isalpha, name)) else None


def _dtype(element: int) -> str:
    """As NumPy calls it; empty of what holds no numbers, and of types that ONNX does not have."""
    from onnx import TensorProto, helper

    known = frozenset(helper.get_all_tensor_dtypes()) - {TensorProto.UNDEFINED, TensorProto.STRING}
    if element not in known:
        return ""
    return str(helper.tensor_dtype_to_np_dtype(element))
