"""How kernels of each listed GPU begin: what a target file does to them, and a change of one."""

from functools import cache

import numpy as np
import onnx
import pytest

from adrenoc.kernels.codegen.build import kernel_sources
from adrenoc.target.target import list_targets
from tests.ir.planning import plan
from tests.models import graph

GPUS = [t.name for t in list_targets() if t.soc is None and t.name.startswith("adreno:")]
LINES = 100
"""Of a kernel: its signature, how threads are placed, and the loops around the arithmetic."""


@cache
def _five_kernels() -> onnx.ModelProto:
    """A dense convolution, a depthwise one, a pool, a product of vectors and a softmax."""
    random = np.random.default_rng(5)

    def weights(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    return graph(
        "c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]>(x, w0) "
        "d = Conv <group = 32, pads = [2, 2, 2, 2]>(c, w1) "
        "p = MaxPool <kernel_shape = [3, 3], strides = [2, 2]>(d) g = GlobalAveragePool(p) "
        "f = Flatten(g) s = Gemm(f, w2) y = Softmax(s)",
        {"x": [1, 16, 64, 64]},
        ["y"],
        {"w0": weights(32, 16, 3, 3), "w1": weights(32, 1, 5, 5), "w2": weights(32, 10)},
    )


@pytest.mark.parametrize("gpu", GPUS)
def test_five_kernels_begin_as_they_did(gpu, golden):
    sources = kernel_sources(plan(_five_kernels(), until="build", device=gpu).executable)
    assert len(sources) >= 5
    golden(
        "\n".join(
            "\n".join([f"// {name}", *text.splitlines()[:LINES]])
            for name, text in sorted(sources.items())
        )
    )
