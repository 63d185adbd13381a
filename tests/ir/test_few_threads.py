"""Targets whose work-groups have few threads: each family has a schedule that fits, or says so."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from adrenoc.base.errors import TargetError
from adrenoc.lab.net import Net
from adrenoc.lab.prove.case import add_to
from adrenoc.lab.prove.suite import CASES
from adrenoc.passes.verify.check_program import check_kernels
from adrenoc.target.target import Target, load_target
from tests.ir.planning import run_until
from tests.models import graph, write

SUITE = [case for case in CASES if not case.title.startswith("map: ")]


def _with_groups_of(most: int, sides: tuple[int, int, int] | None = None) -> Target:
    target = load_target("adreno:660")
    changed = {"max_work_item_sizes": sides} if sides else {}
    limits = replace(target.limits, max_work_group_size=most, **changed)
    return replace(target, gpu=replace(target.gpu, limits=limits))


def _check(model: Path, most: int, sides: tuple[int, int, int] | None = None) -> None:
    """Lower a model for groups of so many threads, and hold its kernels against that."""
    target = _with_groups_of(most, sides)
    state = run_until("lower", model, target, preset="mixed")
    assert state.program is not None
    check_kernels(state.program, target.limits)


@pytest.mark.parametrize(
    ("most", "sides"),
    [
        pytest.param(48, None, marks=pytest.mark.nightly),
        (8, None),
        pytest.param(1024, (1024, 1024, 64), marks=pytest.mark.nightly),
        (1024, (1024, 1024, 2)),
    ],
)
def test_every_family_fits(most, sides, tmp_path):
    net = Net()
    for case in SUITE:
        add_to(net, case)
    model = tmp_path / "m.onnx"
    model.write_bytes(net.model())
    _check(model, most, sides)


@pytest.mark.parametrize("most", [32, 4])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_product_of_many_outputs_fits(rows, most, tmp_path):
    """Its teams would fill a wave, and there are outputs for any number of them."""
    weights = np.zeros((130, 1000), np.float32)
    made = graph("y = MatMul(x, w)", {"x": (rows, 130)}, ["y"], {"w": weights})
    _check(write(made, tmp_path), most)


def test_heads_that_no_group_can_hold_are_an_error(tmp_path):
    net = Net()
    add_to(net, next(case for case in CASES if case.family == "cached_attention"))
    model = tmp_path / "m.onnx"
    model.write_bytes(net.model())
    with pytest.raises(TargetError, match=r"no schedule of cached_attention fits .* 2 threads"):
        _check(model, 2)


@pytest.mark.parametrize("channels", [512, 1024])
def test_groups_of_one_pixel_are_not_deeper_than_their_limit(channels, tmp_path):
    """What has no width and no height fills its groups with blocks of channels."""
    rng = np.random.default_rng(0)
    shapes = {"d": (channels, 1, 3, 3), "w": (channels, channels, 1, 1), "v": (64, channels, 3, 3)}
    nodes = [
        helper.make_node("Conv", ["x", "d"], ["a"], group=channels, pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["y"], pads=[1, 1, 1, 1]),
    ]
    weights = {n: rng.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}
    model = write(graph(nodes, {"x": (1, channels, 1, 2)}, ["y"], weights), tmp_path)
    for sides in ((1024, 1024, 64), (1024, 1024, 4)):
        _check(model, 1024, sides)
