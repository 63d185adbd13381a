"""How far onnxruntime, as programs on this computer have it, is from the exact arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from adrenoc.check.feeds import select_feeds
from adrenoc.check.runtimes import BLOCK_PRODUCT, find_rounding
from adrenoc.device.compare import compare
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.onnx.load import read_proto
from adrenoc.importers.onnx.open_layers import OPENED
from adrenoc.importers.onnx.session import open_as_installed, runtime_errors, saturates
from adrenoc.importers.onnx.unsigned_products import mixes_signs

_WHY = {
    BLOCK_PRODUCT: "its accuracy_level lets it round data to bytes for products of few bits",
    OPENED: "it rounds data and states of recurrent layers to bytes",
}


def explain_installed(
    model: Path, inputs: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> str:
    """Say by how much onnxruntime's own outputs differ from `expected`, which are exact.

    Empty where they do not, and where nothing is in the model that it computes otherwise.
    """
    if find_model_files(model).format == "tflite":
        return ""
    why = [_WHY[operator] for operator in sorted(find_rounding(model))]
    if saturates() and mixes_signs(read_proto(model)):
        why.append("its CPU has no VNNI, and products of uint8 by int8 saturate")
    if not why:
        return ""
    with suppress(*runtime_errors()):  # what it refuses says nothing of its numbers
        session = open_as_installed(model)
        feeds = select_feeds(model, inputs, [value.name for value in session.get_inputs()])
        names = [value.name for value in session.get_outputs()]
        seen = dict(zip(names, session.run(names, feeds), strict=True))
        checked = compare({n: seen[n] for n in expected if n in seen}, expected, tolerance=0.0)
        worst = max(checked.tensors, key=lambda tensor: tensor.range_error, default=None)
        if worst is not None and worst.range_error > 0:
            return (
                f"onnxruntime on this computer is off the exact arithmetic by "
                f"{worst.range_error:.1e} of the range of `{worst.name}`: {'; '.join(why)}; ours "
                "are held against the exact ones"
            )
    return ""
