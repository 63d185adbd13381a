"""What a model is in exact arithmetic, as near as float64 comes: who is right where two disagree.

onnxruntime computes in float32 as we do, and some of its ways lose all digits that there are: the
variance as a difference of squares, the logarithm of a sigmoid that has become 0.  onnx's own
evaluator computes the same file in float64, which settles whose the error is.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from adrenoc.importers.formats import find_model_files
from adrenoc.importers.frontend import CONVERTER_ERRORS
from adrenoc.importers.onnx.load import load_onnx
from adrenoc.importers.onnx.open_layers import open_layers
from adrenoc.importers.onnx.widen_halves import widen_floats

_MOST_BYTES = 1 << 28
"""Of a model that is computed so: larger ones would take too long."""
_STASH = "stash_type"
"""The attribute by which norms name the type that they compute in; float32 where it is absent."""


def run_exact(model: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Compute the outputs of an ONNX model in float64; none where that cannot be done.

    That is where onnx's evaluator lacks an operator, of TFLite, and of large models.
    """
    files = find_model_files(model)
    if files.format == "tflite" or sum(p.stat().st_size for p in files.paths) > _MOST_BYTES:
        return {}
    from onnx.reference import ReferenceEvaluator

    proto, _ = load_onnx(files)
    open_layers(proto)
    _state_types(proto)
    widen_floats(proto)
    feeds = {n: v.astype(np.float64) if v.dtype.kind == "f" else v for n, v in inputs.items()}
    names = [value.name for value in proto.graph.output]
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = ReferenceEvaluator(proto).run(names, feeds)
    except CONVERTER_ERRORS:
        return {}
    return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}


def _state_types(model: onnx.ModelProto) -> None:
    """Write down the type that norms compute in, so that it can be another one."""
    for node in model.graph.node:
        opset = next((o.version for o in model.opset_import if o.domain == node.domain), 0)
        try:
            known = onnx.defs.get_schema(node.op_type, opset, node.domain).attributes
        except onnx.defs.SchemaError:
            continue
        if _STASH in known and not any(a.name == _STASH for a in node.attribute):
            node.attribute.append(onnx.helper.make_attribute(_STASH, onnx.TensorProto.FLOAT))
