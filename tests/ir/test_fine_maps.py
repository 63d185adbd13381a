"""A map as fine as the picture, of far fewer places, lies in float32 with all before it."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.ir.planning import plan
from tests.models import graph

_RANDOM = np.random.default_rng(5)


def _hourglass(levels: int, *, widened: int | None = None, side: int = 128) -> onnx.ModelProto:
    """So many convolutions that halve a picture, as many (or `widened`) that double it, a mask."""
    nodes, constants, name, channels = [], {}, "x", 3

    def add(op: str, made: str, side: int, **more: object) -> None:
        nonlocal name, channels
        shape = (channels, 8, side, side) if op == "ConvTranspose" else (8, channels, side, side)
        constants[f"w_{made}"] = _RANDOM.normal(0, 0.2, shape).astype(np.float32)
        nodes.append(helper.make_node(op, [name, f"w_{made}"], [f"c_{made}"], **more))
        nodes.append(helper.make_node("Relu", [f"c_{made}"], [made]))
        name, channels = made, 8

    add("Conv", "stem", 3, pads=[1] * 4)
    for level in range(levels):
        add("Conv", f"down{level}", 3, pads=[1] * 4, strides=[2, 2])
    for level in range(levels if widened is None else widened):
        add("ConvTranspose", f"up{level}", 2, strides=[2, 2])
    constants["last"] = _RANDOM.normal(0, 0.2, (1, 8, 1, 1)).astype(np.float32)
    nodes.append(helper.make_node("Conv", [name, "last"], ["logit"]))
    nodes.append(helper.make_node("Sigmoid", ["logit"], ["mask"]))
    return graph(nodes, {"x": [1, 3, side, side]}, ["mask"], constants)


def _kept(model: onnx.ModelProto, preset: str = "mixed") -> tuple[set[str], list[str]]:
    state = plan(model, until="keep_float32", preset=preset, keep_float32=True)
    told = [d.subject for d in state.log if d.reason.startswith("it is as fine as")]
    return set(state.graph.float32_names), told


def test_all_that_a_mask_is_computed_of_lies_in_float32():
    kept, told = _kept(_hourglass(3))
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
    kept, told = _kept(model)
    assert not {"stem", "down0"} & kept
    assert not told


def test_what_widens_and_never_narrowed_is_no_mask():
    _, told = _kept(_hourglass(0, widened=3))
    assert not told


def test_a_map_that_is_resized_is_as_fine_as_it_becomes():
    model = _hourglass(3, widened=2)
    model.graph.output[0].name = "large"
    model.graph.initializer.append(numpy_helper.from_array(np.float32([1, 1, 2, 2]), "scales"))
    model.graph.node.append(helper.make_node("Resize", ["mask", "", "scales"], ["large"]))
    kept, told = _kept(model)
    assert {"stem", "down0", "down2", "up1", "mask"} <= kept
    assert told == ["large"]


def test_fp16_computes_as_it_was_asked_to():
    kept, told = _kept(_hourglass(3), preset="fp16")
    assert "down0" not in kept
    assert not told
