"""Constants that halves cannot hold: what stays in float32 with them, and what does not."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from planning import plan

from adrenoc.passes.precision import analysis
from adrenoc.pipeline import State
from tests.models import graph


def _weights(*shape: int, size: float = 1.0) -> np.ndarray:
    return np.random.default_rng(1).uniform(-size, size, shape).astype(np.float32)


@pytest.fixture(autouse=True)
def _no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What weights make of data is another rule's."""
    monkeypatch.setattr(analysis, "typical_sizes", lambda _: {})


def _planned(w: np.ndarray, b: np.ndarray, preset: str = "mixed", clml: str = "off") -> State:
    """conv (w, b) -> max_pool."""
    model = graph(
        [
            helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("MaxPool", ["c"], ["y"], kernel_shape=[2, 2]),
        ],
        {"x": [1, 6, 8, 8]},
        ["y"],
        {"w": w, "b": b},
    )
    return plan(model, until="keep_float32", preset=preset, clml=clml)


def _kept(state: State) -> set[str]:
    """The operators whose results are kept, `constant` for constants."""
    assert state.graph is not None
    kept = set()
    for name in state.graph.float32_names:
        maker = state.graph.producers.get(name)
        kept.add("constant" if maker is None else maker.op)
    return kept


def test_weights_and_what_hands_on_their_results() -> None:
    state = _planned(_weights(6, 6, 3, 3, size=1e-7), _weights(6, size=1e-7))
    assert _kept(state) == {"constant", "conv2d", "max_pool2d"}
    said = [d for d in state.log if "half loses digits" in d.reason]
    assert [d.taken for d in said] == ["float32"] * 2


@pytest.mark.parametrize("size", (1e-7, 1e6))
def test_a_bias(size: float) -> None:
    """A tiny one is only read in float32; a large one makes large results."""
    state = _planned(_weights(6, 6, 3, 3), _weights(6, size=size))
    more = set() if size < 1 else {"conv2d", "max_pool2d"}
    assert _kept(state) == {"constant"} | more


def test_what_halves_hold_stays_as_it_is() -> None:
    weights = np.where(_weights(6, 6, 3, 3) > 0, np.float32(6e4), np.float32(1e-9))
    assert not _kept(_planned(weights, np.zeros(6, np.float32)))


def test_a_mask_costs_its_own_bytes_alone() -> None:
    mask = np.where(_weights(1, 1, 8, 8) > 0, np.float32(-1e9), np.float32(0))
    model = graph(
        [
            helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[1, 1]),
            helper.make_node("Add", ["p", "m"], ["s"]),
            helper.make_node("Softmax", ["s"], ["y"], axis=-1),
        ],
        {"x": [1, 6, 8, 8]},
        ["y"],
        {"m": mask},
    )
    assert _kept(plan(model, until="keep_float32")) == {"constant"}


def test_clml_leaves_such_operators_to_texture_kernels() -> None:
    state = _planned(_weights(6, 6, 3, 3, size=1e6), _weights(6), clml="all")
    refused = [d for d in state.log if d.taken == "nn.conv2d stays in textures"]
    assert len(refused) == 1
    assert "half ends at 65504" in refused[0].reason
    assert "conv2d" in _kept(state)


def test_a_concatenation_with_one_such_part() -> None:
    model = graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"]),
            helper.make_node("AveragePool", ["x"], ["a"], kernel_shape=[1, 1]),
            helper.make_node("Concat", ["c", "a"], ["j"], axis=1),
            helper.make_node("Conv", ["j", "v"], ["d"]),
            helper.make_node("Add", ["c", "a"], ["s"]),
            helper.make_node("Conv", ["s", "w"], ["e"]),
        ],
        {"x": [1, 8, 8, 8]},
        ["d", "e"],
        {"w": _weights(8, 8, 1, 1, size=1e-7), "v": _weights(8, 16, 1, 1)},
    )
    state = plan(model, until="keep_float32")
    assert state.graph is not None
    kept = {n.operators[-1] for n in state.graph.nodes if n.output in state.graph.float32_names}
    assert kept == {"conv2d", "concat"}
    assert len(state.graph.float32_names) == len({"w", "c", "j", "e"})


@pytest.mark.parametrize(("back", "kept"), [(1.0, False), (1e8, True)])
def test_one_tiny_channel_counts_where_it_is_brought_back(back: float, kept: bool) -> None:
    """Channels that training has let die are tiny, too, and stay so."""
    first, second = _weights(6, 6, 3, 3), _weights(6, 6, 1, 1)
    first[2] *= 1e-9
    second[:, 2] *= back
    model = graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2]),
            helper.make_node("Conv", ["p", "v"], ["y"]),
        ],
        {"x": [1, 6, 8, 8]},
        ["y"],
        {"w": first, "v": second},
    )
    state = plan(model, until="keep_float32")
    said = [d for d in state.log if "brings back" in d.reason]
    assert len(said) == (2 if kept else 0)
