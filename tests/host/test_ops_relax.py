"""What ONNX cannot say but TFLite or TVM can: NHWC data, further norms."""

from typing import Any

import numpy as np
import pytest

from tests.host.run_op import check_relax

pytestmark = pytest.mark.operator

PRESETS = ("fp32", "mixed")


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-1.0, 1.0, shape).astype(np.float32)


def families(state: Any) -> list[str]:
    return [state.program.kernels[s.kernel].family for s in state.program.steps]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("kind", ("max", "avg"))
def test_pools_of_channels_last(device, preset, kind):
    from tvm import relax

    def make(x: Any) -> Any:
        pool = getattr(relax.op.nn, f"{kind}_pool2d")
        return pool(x, (3, 2), strides=(2, 1), padding=(1, 0, 1, 1), layout="NHWC")

    state = check_relax(device, make, data(2, 7, 6, 5), preset=preset)
    assert f"{kind}_pool2d" in families(state)


@pytest.mark.parametrize("kind", ("max", "avg"))
def test_pools_that_round_up(device, kind):
    from tvm import relax

    def make(x: Any) -> Any:
        pool = getattr(relax.op.nn, f"{kind}_pool2d")
        return pool(x, (3, 3), strides=(2, 2), ceil_mode=True)

    check_relax(device, make, data(1, 6, 8, 10), preset="fp32")


@pytest.mark.parametrize("preset", PRESETS)
def test_convolution_of_channels_last(device, preset):
    from tvm import relax

    def make(x: Any) -> Any:
        weight = relax.const(data(3, 3, 5, 6))
        return relax.op.nn.conv2d(
            x, weight, padding=(1, 0, 1, 2), data_layout="NHWC", kernel_layout="HWIO"
        )

    check_relax(device, make, data(1, 6, 7, 5), preset=preset)


@pytest.mark.parametrize("preset", PRESETS)
def test_rms_norm(device, preset):
    from tvm import relax

    state = check_relax(
        device,
        lambda x: relax.op.nn.rms_norm(x, relax.const(data(9)), axes=[-1], epsilon=1e-3),
        data(2, 5, 9),
        preset=preset,
    )
    assert "rms_norm" in families(state)


def test_reduction_of_tokens_in_nhwc(device):
    """The mean over rows and columns keeps the last axis, which is the texel's."""
    from tvm import relax

    def make(x: Any) -> Any:
        pooled = relax.op.nn.max_pool2d(x, (2, 2), layout="NHWC")
        return relax.op.mean(pooled, axis=[1, 2])

    state = check_relax(device, make, data(2, 5, 6, 10), preset="fp32")
    assert families(state)[-1] == "mean"
