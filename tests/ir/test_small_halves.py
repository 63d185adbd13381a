"""What is small stays in float32, and what is as fine as a picture."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from adrenoc.passes.precision.keep_float32 import SHARE
from tests.ir.planning import plan
from tests.models import graph

FLUSHES = """title = "one that flushes"
base = "adreno:750"
[[quirks]]
name = "measured-half-denormals"
text = "Halves below 6.1e-5 are zeros."
source = "measured on one"
avoid = ["half-denormals"]
"""


@pytest.mark.parametrize(
    ("epsilon", "kept"), [(1e-8, (True, True)), (5e-5, (False, True)), (1e-3, (False, False))]
)
def test_a_distance_kept_from_zero(epsilon, kept, tmp_path):
    file = tmp_path / "flushes.toml"
    file.write_text(FLUSHES)
    weights = np.random.default_rng(1).standard_normal((4, 4, 1, 1)).astype(np.float32)
    model = graph(
        "c = Conv(x, w) a = Abs(c) d = Add(a, e) p = MaxPool <kernel_shape = [2, 2]>(d) "
        "r = Reciprocal(p) y = Conv(r, w)",
        {"x": [1, 4, 8, 8]},
        ["y"],
        {"e": np.array(epsilon, np.float32), "w": weights},
    )
    found = []
    for device in ("adreno:750", str(file)):
        state = plan(model, until="keep_float32", device=device, keep_float32=True)
        found.append(bool([d for d in state.log if "makes more of a rounding" in d.reason]))
    assert tuple(found) == kept
    assert [d.reason for d in state.log if d.taken == "without half-denormals"] == [
        "quirk measured-half-denormals: measured on one"
    ]


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


_RANDOM_MAPS = np.random.default_rng(5)


def _hourglass(levels: int, *, widened: int | None = None, side: int = 128) -> onnx.ModelProto:
    """So many convolutions that halve a picture, as many (or `widened`) that double it, a mask."""
    nodes, constants, name, channels = [], {}, "x", 3

    def add(op: str, made: str, side: int, **more: object) -> None:
        nonlocal name, channels
        shape = (channels, 8, side, side) if op == "ConvTranspose" else (8, channels, side, side)
        constants[f"w_{made}"] = _RANDOM_MAPS.normal(0, 0.2, shape).astype(np.float32)
        nodes.append(helper.make_node(op, [name, f"w_{made}"], [f"c_{made}"], **more))
        nodes.append(helper.make_node("Relu", [f"c_{made}"], [made]))
        name, channels = made, 8

    add("Conv", "stem", 3, pads=[1] * 4)
    for level in range(levels):
        add("Conv", f"down{level}", 3, pads=[1] * 4, strides=[2, 2])
    for level in range(levels if widened is None else widened):
        add("ConvTranspose", f"up{level}", 2, strides=[2, 2])
    constants["last"] = _RANDOM_MAPS.normal(0, 0.2, (1, 8, 1, 1)).astype(np.float32)
    nodes.append(helper.make_node("Conv", [name, "last"], ["logit"]))
    nodes.append(helper.make_node("Sigmoid", ["logit"], ["mask"]))
    return graph(nodes, {"x": [1, 3, side, side]}, ["mask"], constants)


def _kept_maps(model: onnx.ModelProto, preset: str = "mixed") -> tuple[set[str], list[str]]:
    state = plan(model, until="keep_float32", preset=preset, keep_float32=True)
    told = [d.subject for d in state.log if d.reason.startswith("it is as fine as")]
    return set(state.graph.float32_names), told


def test_all_that_a_mask_is_computed_of_lies_in_float32():
    kept, told = _kept_maps(_hourglass(3))
    assert {"stem", *(f"{way}{level}" for way in ("down", "up") for level in range(3))} <= kept
    assert told == ["mask"]
    weights = [n for n in kept if n.startswith("const")]
    assert len(weights) == 8, "weights are rounded as tensors are"


@pytest.mark.parametrize(
    "model",
    [_hourglass(2), _hourglass(3, widened=2), _hourglass(3, widened=0), _hourglass(3, side=96)],
    ids=["little narrowed", "coarser than the picture", "narrowed alone", "latents"],
)
def test_other_networks_of_pictures_keep_their_halves(model):
    kept, told = _kept_maps(model)
    assert not {"stem", "down0"} & kept
    assert not told


def test_what_widens_and_never_narrowed_is_no_mask():
    _, told = _kept_maps(_hourglass(0, widened=3))
    assert not told


def test_a_map_that_is_resized_is_as_fine_as_it_becomes():
    model = _hourglass(3, widened=2)
    model.graph.output[0].name = "large"
    model.graph.initializer.append(numpy_helper.from_array(np.float32([1, 1, 2, 2]), "scales"))
    model.graph.node.append(helper.make_node("Resize", ["mask", "", "scales"], ["large"]))
    kept, told = _kept_maps(model)
    assert {"stem", "down0", "down2", "up1", "mask"} <= kept
    assert told == ["large"]


def test_fp16_computes_as_it_was_asked_to():
    kept, told = _kept_maps(_hourglass(3), preset="fp16")
    assert "down0" not in kept
    assert not told
