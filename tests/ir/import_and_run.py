"""Import, simplify and run a model on the CPU with stock TVM, against its reference runtime."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tvm

from adrenoc.check.inputs import make_inputs
from adrenoc.check.reference import run_reference
from adrenoc.importers import import_model
from adrenoc.importers.imported import Imported
from adrenoc.importers.relax.values import op_name
from adrenoc.passes.rewrites.simplify import simplify
from tests.stock_tvm import run_on_cpu


def operators(module: tvm.IRModule) -> Counter[str]:
    """How often `main` calls each operator; it must be one flat block."""
    (block,) = module["main"].body.blocks
    return Counter(op_name(b.value).removeprefix("relax.") for b in block.bindings)


def check(
    path: Path, *, shapes: dict[str, tuple[int, ...]] | None = None, tolerance: float = 1e-5
) -> tuple[Imported, tvm.IRModule]:
    """Assert that the imported model computes what the file says; return both modules."""
    pytest.importorskip("ai_edge_litert" if path.suffix == ".tflite" else "onnxruntime")
    imported = import_model(path, shapes=shapes or {})
    module, _ = simplify(imported.module)
    feeds = make_inputs(imported.inputs)
    expected = run_reference(path, feeds, optimise=False)
    assert [spec.name for spec in imported.outputs] == list(expected)
    for spec, found in zip(imported.outputs, run_on_cpu(module, list(feeds.values())), strict=True):
        wanted = expected[spec.name]
        assert found.shape == wanted.shape == spec.shape
        assert str(found.dtype) == str(wanted.dtype) == spec.dtype
        extent = max(float(np.ptp(wanted.astype(np.float64))), 1e-3)
        error = np.abs(found.astype(np.float64) - wanted).max() / extent
        assert error < tolerance, f"{spec.name}: {error:.2e} of the range"
    return imported, module
