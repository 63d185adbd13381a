"""Sessions of onnxruntime whose numbers others are held against: made here, and nowhere else.

Their integers are exact on every CPU (`unsigned_products`), and their settings those under which
onnxruntime computes what the file says.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from adrenoc.base.errors import InputError
from adrenoc.base.host.onnx_runtime import import_onnxruntime
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.onnx.load import load_onnx, read_proto
from adrenoc.importers.onnx.unsigned_products import mixes_signs, move_to_unsigned

_SIGNED_BYTES = ("session.qdqisint8allowed", "1")
"""onnxruntime's setting by which it computes on signed bytes between conversions, everywhere as on
arm64 (source: onnxruntime_session_options_config_keys.h)."""
_EXACT_PRODUCTS = ("session.qdq_matmulnbits_accuracy_level", "1")
"""onnxruntime's setting by which it multiplies weights of 4 bits in float, as the file says, and
rounds no data to bytes for it (source: the same)."""
_DATA_FOLDER = "session.model_external_initializers_file_folder_path"
"""onnxruntime's setting for where the weights lie of a model that comes as bytes (source: the
same)."""
_PROVIDERS = ("CPUExecutionProvider",)
_PROTOBUF_MAX_BYTES = 2**31 - 1  # it refuses to serialise more


def open_session(
    model: Path | onnx.ModelProto,
    *,
    beside: Path | None = None,
    plain: bool = False,
    signed: bool = True,
    threads: int = 0,
) -> Any:
    """Open a session on a file, or on a model with all its weights, which may be changed for it.

    Weights of a model that multiplies no signed by unsigned bytes may also lie in the folder
    `beside`, as it says.  With `plain` onnxruntime fuses nothing; with `signed` off it makes
    unsigned bytes of signed data between conversions.  Its own exceptions (`runtime_errors`) are
    passed on.

    Raises:
        ImportError: it is not installed.
        InputError: a model is too large to be handed over in memory.
    """
    runtime = import_onnxruntime()
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # It prints what it also raises.
    options.intra_op_num_threads = threads
    options.add_session_config_entry(*_EXACT_PRODUCTS)
    if beside is not None:
        options.add_session_config_entry(_DATA_FOLDER, str(beside))
    if signed:
        options.add_session_config_entry(*_SIGNED_BYTES)
    if plain:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = _write_unsigned(model, as_unsigned=not signed)
    return runtime.InferenceSession(source, options, providers=list(_PROVIDERS))


def open_as_installed(model: Path | onnx.ModelProto) -> Any:
    """Open the session that a user's own program has: no setting, and the model as it is.

    Raises:
        ImportError: onnxruntime is not installed.
    """
    runtime = import_onnxruntime()
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return runtime.InferenceSession(source, options, providers=list(_PROVIDERS))


def runtime_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of onnxruntime, which share no base but Exception."""
    state = import_onnxruntime().capi.onnxruntime_pybind11_state
    own = [v for v in vars(state).values() if isinstance(v, type) and issubclass(v, Exception)]
    return (*own, RuntimeError, ValueError)


@cache
def saturates() -> bool:
    """Return whether onnxruntime's own products of uint8 by int8 are wrong on this CPU.

    Raises:
        ImportError: it is not installed.
    """
    ones = np.full((4, 4), np.iinfo(np.int8).max, np.int8)
    data = np.full((4, 4), np.iinfo(np.uint8).max, np.uint8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "saturates",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, data.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, (4, 4))],
        [numpy_helper.from_array(ones, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    (seen,) = open_as_installed(model).run(None, {"x": data})
    return not np.array_equal(seen, data.astype(np.int32) @ ones.astype(np.int32))


def _write_unsigned(model: Path | onnx.ModelProto, *, as_unsigned: bool) -> str | bytes:
    """Return a file's name as it is, where nothing in it is to change; else the bytes of the
    model."""
    if isinstance(model, Path):
        thin = read_proto(model)
        if not mixes_signs(thin, as_unsigned=as_unsigned):
            return str(model)
        name = str(model)
        model, _ = load_onnx(find_model_files(model))
        if model.ByteSize() > _PROTOBUF_MAX_BYTES and not saturates():
            return name  # which this CPU multiplies exactly by itself
    else:
        name = model.graph.name
    move_to_unsigned(model, as_unsigned=as_unsigned)
    size = model.ByteSize()
    if size > _PROTOBUF_MAX_BYTES:
        raise InputError(
            f"{name} holds {size} bytes with its weights; what is changed for the reference, as "
            "where intermediate tensors are read and bytes are multiplied exactly, can be up to "
            f"{_PROTOBUF_MAX_BYTES} bytes",
            hint="compare a part of the model, or its outputs alone",
        )
    return model.SerializeToString()
