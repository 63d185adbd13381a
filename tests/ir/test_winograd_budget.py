"""Convolutions by Winograd's algorithm in halves: as many as the rounding of a network allows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from adrenoc.base.decision import DecisionLog
from adrenoc.base.reporter import SilentReporter
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.compile.steps import graph_of
from adrenoc.ir.options import resolve_options
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry
from adrenoc.kernels.families.winograd.winograd import Tiling, winograd
from adrenoc.passes.fuse.split_winograd import MOST, WinogradWay, choose_within_budget
from adrenoc.target.target import load_target
from tests.decided import slow_host
from tests.ir.planning import run_until
from tests.models import graph, write

LAYERS = 6
CHANNELS = 64


def _chain() -> onnx.ModelProto:
    """3x3 convolutions that the algorithm wins at, one behind the other."""
    random = np.random.default_rng(0)
    shape = (CHANNELS, CHANNELS, 3, 3)
    weights = {f"w{i}": random.normal(0, 0.04, shape).astype(np.float32) for i in range(LAYERS)}
    for name, shape in (("u", (CHANNELS, 3, 1, 1)), ("v", (8, CHANNELS, 1, 1))):
        weights[name] = random.normal(0, 0.1, shape).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "u"], ["t0"]),
        *(
            helper.make_node("Conv", [f"t{i}", f"w{i}"], [f"t{i + 1}"], pads=[1] * 4)
            for i in range(LAYERS)
        ),
        helper.make_node("Conv", [f"t{LAYERS}", "v"], ["y"]),
    ]
    return graph(nodes, {"x": [1, 3, 112, 112]}, ["y"], weights)


def _by_winograd(folder: Path, preset: str) -> tuple[int, list[str]]:
    """How many of them go by the algorithm, and why others do not."""
    model = write(_chain(), folder)
    state = run_until("split_winograd", model, "adreno:750", preset=preset)
    count = sum(node.op.startswith("winograd_") for node in graph_of(state).nodes)
    return count, [d.reason for d in state.log if d.taken == "not by Winograd's algorithm"]


def test_mixed_takes_what_its_rounding_allows_and_says_what_it_leaves(tmp_path):
    count, left = _by_winograd(tmp_path, "mixed")
    assert 0 < count < LAYERS
    assert len(left) == LAYERS - count
    assert all("it would save" in reason and f"beyond {MOST}" in reason for reason in left)


def test_floats_take_all(tmp_path):
    assert _by_winograd(tmp_path, "fp32") == (LAYERS, [])


def test_what_saves_most_is_taken_first(tmp_path):
    target = load_target("adreno:750")
    options = resolve_options(target, preset="mixed").options
    state = State(model=write(_chain(), tmp_path), target=target, options=options)
    state, _ = run_stages(state, reporter=SilentReporter(), stop_after="fuse_depthwise")
    placed = graph_of(state)
    names = [node.output for node in placed.nodes if node.op == "conv2d"][1:-1]
    way = WinogradWay(
        geometry=ConvGeometry(kernel=(3, 3)),
        clocks=1000,
        direct=2000,
        tiling=Tiling.cover(winograd(2), placed.operand(names[0]).extents),
        whole=True,
    )
    savings = {name: replace(way, clocks=1000 - 100 * at) for at, name in enumerate(names)}
    taken = choose_within_budget(placed, savings, options, DecisionLog())
    assert 0 < len(taken) < len(names)
    assert taken == frozenset(names[-len(taken) :])
    halves = resolve_options(target, preset="fp16").options
    assert choose_within_budget(placed, savings, halves, DecisionLog()) == frozenset(names)


def test_long_kernels_do_not_wait_for_the_host(tmp_path, monkeypatch):
    slow_host(monkeypatch, 1e5)
    assert _by_winograd(tmp_path, "fp32") == (LAYERS, [])
