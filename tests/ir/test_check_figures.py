"""Figures of `check` that people act on: tables, transformed weights, rates that nobody knows."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from adrenoc.base.reporter import SilentReporter
from adrenoc.base.text.spelling import show_count
from adrenoc.check.check_model import check_model
from adrenoc.check.verdict import Policy, Verdict
from adrenoc.ir.options import resolve_options
from adrenoc.target.target import load_target
from tests.commands import invoke
from tests.models import graph, write

DRAW = np.random.default_rng(6)


def write_lookup(folder: Path, rows: int, also: bool = False) -> Path:
    """Rows of a table at 77 places; `also` all of it is summed up."""
    table = DRAW.standard_normal((rows, 64)).astype(np.float32)
    more = " m = Mul(w, z)" if also else ""
    nodes = f"g = Gather <axis = 0>(w, i) y = Relu(g){more}"
    inputs = {"i": (1, 77), "z": (1, 64)} if also else {"i": (1, 77)}
    outputs = ["y", "m"] if also else ["y"]
    return write(
        graph(nodes, inputs, outputs, {"w": table}, dtypes={"i": TensorProto.INT64}), folder
    )


def judge(model: Path, device: str = "adreno:750") -> Verdict:
    target = load_target(device)
    options = resolve_options(target).options
    return check_model(
        model, target=target, options=options, policy=Policy(), reporter=SilentReporter()
    )


def test_a_lookup_counts_what_it_reads(tmp_path):
    small, large = (judge(write_lookup(tmp_path, rows)) for rows in (100, 20_000))
    assert small.totals.bytes == large.totals.bytes
    assert large.totals.floor_bytes <= 2 * 77 * 64 * 4 * 4
    assert large.memory.plan.param_bytes > 1 << 20


def test_a_table_that_is_read_whole_counts_whole(tmp_path):
    verdict = judge(write_lookup(tmp_path, 20_000, also=True))
    assert verdict.totals.bytes > 20_000 * 64 * 2


def test_nobody_is_told_to_split_a_table(tmp_path):
    assert not judge(write_lookup(tmp_path, 40_000)).near_misses


def write_convs(folder: Path) -> Path:
    """Three convolutions: those at the border may be kept from halves, and so as they are."""
    names = [f"t{i}" for i in range(7)]
    weights, nodes = {}, []
    for i in range(3):
        drawn = DRAW.standard_normal((256, 256, 3, 3)) * 0.02
        weights[f"w{i}"] = drawn.astype(np.float32)
        x, between, y = names[2 * i : 2 * i + 3]
        nodes.append(helper.make_node("Conv", [x, f"w{i}"], [between], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [between], [y]))
    return write(graph(nodes, {"t0": [1, 256, 32, 32]}, ["t6"], weights), folder)


def test_transformed_weights_are_told(tmp_path):
    model = write_convs(tmp_path)
    memory = judge(model).memory
    assert memory.plain_bytes in [256 * 256 * 9 * 2 * count for count in (1, 2, 3)]
    assert memory.winograd_bytes in [memory.plain_bytes * planes // 9 for planes in (16, 36)]
    said = invoke("check", model, "--device", "adreno:750", catch=True)
    assert "adrenoc compile --set winograd=false saves" in " ".join(said.stdout.split())


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("adreno:660", "in part: no source gives texels_per_clock of adreno:a660"),
        ("adreno", "unknown: no source gives fp32_fma_lanes"),
    ],
)
def test_rates_that_nobody_knows_are_told_beside_the_time(tmp_path, device, words):
    said = invoke("check", write_convs(tmp_path), "--device", device, catch=True)
    [line] = [one for one in said.stdout.splitlines() if one.strip().startswith("time ")]
    assert words in line


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (999, "999 "),
        (1490, "1.49 k"),
        (1_490_000_000_000, "1.49 T"),
        (999_960_000_000, "1 T"),
        (3_360_000_000, "3.36 G"),
        (2_500_000_000_000_000_000, "2500 P"),
    ],
)
def test_counts_are_plain_numbers(number, shown):
    assert show_count(number) == shown
