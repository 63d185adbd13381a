"""Tells a decoder with past and present keys and values by its inputs and outputs.

Loads neither TVM nor files of weights beside the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adrenoc.files.read import read_plain
from adrenoc.importers.formats import find_model_files
from adrenoc.text.json_text import read_json

GENAI_CONFIG = "genai_config.json"
"""What onnxruntime-genai's builder writes beside a model."""

_RENAMED = (("past_key_values", "present"), ("past", "present"))
"""How exporters make the name of an output of that of an input."""


@dataclass(frozen=True, kw_only=True)
class CacheSpec:
    """A cache of keys or values: its input, its output, heads and numbers a head."""

    past: str
    present: str
    heads: int
    head: int
    dtype: str


@dataclass(frozen=True, kw_only=True)
class DecoderForm:
    """Caches of a decoder, whether it takes positions, and its context as its configuration says.

    `context` is 0 where no configuration lies beside the model.
    """

    caches: tuple[CacheSpec, ...]
    masked: bool
    positions: bool
    context: int


def find_decoder(model: Path) -> DecoderForm | None:
    """The form of a decoder whose past grows from run to run; None of any other model.

    Raises:
        ModelNotFoundError, ModelFormatError: see `find_model_files`.
    """
    files = find_model_files(model)
    if files.format != "onnx":
        return None
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from onnx import TensorProto

    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(files.paths[0].read_bytes())
    except DecodeError:
        return None  # the importer says what is wrong with it
    inputs = {value.name: _extents(value) for value in proto.graph.input}
    dtypes = {
        value.name: str(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        for value in proto.graph.input
        if value.type.tensor_type.elem_type in (TensorProto.FLOAT, TensorProto.FLOAT16)
    }
    outputs = {value.name for value in proto.graph.output}
    caches = [
        CacheSpec(past=name, present=present, heads=shape[1], head=shape[3], dtype=dtypes[name])
        for name, shape in inputs.items()
        if len(shape) == 4
        and name in dtypes
        and isinstance(shape[1], int)
        and isinstance(shape[3], int)
        and not isinstance(shape[2], int)
        and (present := _present_of(name, outputs))
    ]
    if not caches or "input_ids" not in inputs or "logits" not in outputs:
        return None
    return DecoderForm(
        caches=tuple(caches),
        masked="attention_mask" in inputs,
        positions="position_ids" in inputs,
        context=_context_beside(model),
    )


def _extents(value: Any) -> list[Any]:
    dims = value.type.tensor_type.shape.dim
    return [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in dims]


def _present_of(past: str, outputs: set[str]) -> str:
    """The output that is the same cache, by the exporters' names; empty where there is none."""
    for old, new in _RENAMED:
        name = past.replace(old, new, 1)
        if name != past and name in outputs:
            return name
    return ""


def _context_beside(model: Path) -> int:
    """The context that genai's configuration states, 0 where there is none that is understood."""
    path = model.parent / GENAI_CONFIG
    if not path.is_file():
        return 0
    try:
        length = read_json(read_plain(path))["model"]["context_length"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return length if type(length) is int and length > 0 else 0
