"""What is small stays in float32: halves of it would save nothing, and its roundings do most."""

import numpy as np
import onnx
import pytest

from adrenoc.passes.precision.keep_float32 import SHARE
from tests.ir.planning import plan
from tests.models import graph

_RANDOM = np.random.default_rng(3)


def _gated(*, side: int = 48, weights: float = 1.0, exact: bool = False) -> onnx.ModelProto:
    """Two convolutions of a picture, and a gate for each channel of its mean."""

    def draw(*shape: int) -> np.ndarray:
        value = _RANDOM.uniform(-weights, weights, shape).astype(np.float32)
        return value.astype(np.float16).astype(np.float32) if exact else value

    nodes = (
        "a = Conv <pads = [1, 1, 1, 1]>(x, w0) map = Relu(a) mean = GlobalAveragePool(map) "
        "b = Conv(mean, w1) gate = Sigmoid(b) gated = Mul(map, gate) "
        "y = Conv <pads = [1, 1, 1, 1]>(gated, w2)"
    )
    constants = {"w0": draw(16, 3, 3, 3), "w1": draw(16, 16, 1, 1), "w2": draw(16, 16, 3, 3)}
    return graph(nodes, {"x": [1, 3, side, side]}, ["y"], constants)


def _kept(model: onnx.ModelProto, preset: str = "mixed") -> set[str]:
    state = plan(model, until="keep_float32", preset=preset, keep_float32=True)
    kept = set(state.graph.float32_names)
    sizes = {n: int(np.prod(state.graph.tensors[n].shape)) for n in kept}
    told = [d for d in state.log if "smallest" in d.subject]
    assert len(told) == (preset == "mixed" and any(s < 1000 for s in sizes.values()))
    return kept


def test_a_gate_its_mean_and_small_weights_are_exact():
    kept = _kept(_gated())
    assert {"mean", "gate"} <= kept
    assert not {"map", "gated"} & kept
    small = [n for n in kept if n.startswith("const") or n in ("w0", "w1")]
    assert len(small) >= 2, kept


def test_a_small_part_lies_in_the_whole():
    """So as the halves of ShuffleNetV2's units: a part of another dtype would be moved."""
    nodes = "a = Conv(x, w0) b = Conv(x, w1) c = Concat <axis=1>(a, b) y = Conv(c, w2)"
    shapes = {"w0": (252, 3, 1, 1), "w1": (4, 3, 1, 1), "w2": (16, 256, 1, 1)}
    constants = {n: _RANDOM.uniform(-1, 1, s).astype(np.float32) for n, s in shapes.items()}
    kept = _kept(graph(nodes, {"x": [1, 3, 96, 96]}, ["y"], constants))
    assert not kept & {"a", "b", "c"}
    assert any(n.startswith("const") or n == "w1" for n in kept), kept


def test_weights_that_halves_hold_need_no_more():
    assert not any(n.startswith("const") or n in ("w0", "w1") for n in _kept(_gated(exact=True)))


def test_no_more_than_the_share_is_spent():
    """Of a small picture the weights are too large a part of what is in half."""
    state = plan(_gated(side=8), until="keep_float32", keep_float32=True)
    tensors = state.graph.tensors
    learned = [n for n in state.graph.float32_names if n != "x" and n not in state.graph.outputs]
    total = sum(int(np.prod(t.shape)) for t in tensors.values())
    assert sum(int(np.prod(tensors[n].shape)) for n in learned) <= SHARE * total


@pytest.mark.parametrize("preset", ("fp16", "fp32"))
def test_other_presets_stay_as_they_are(preset):
    """In fp16 it would be arithmetic, too, which costs what was asked for."""
    assert "gate" not in _kept(_gated(), preset)
