"""Targets whose work-groups have few threads: each family has a schedule that fits, or says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from adrenoc.errors import TargetError
from adrenoc.options import resolve_options
from adrenoc.passes.verify.check_launches import check_kernels
from adrenoc.pipeline import State, run_stages
from adrenoc.prove.case import add_to
from adrenoc.prove.cases.table import CASES
from adrenoc.prove.net import Net
from adrenoc.reporter import SilentReporter
from adrenoc.target.target import Target, load_target

SUITE = [case for case in CASES if not case.title.startswith("map: ")]


def _with_groups_of(most: int) -> Target:
    target = load_target("adreno:660")
    limits = replace(target.limits, max_work_group_size=most)
    return replace(target, gpu=replace(target.gpu, limits=limits))


def _check(model: Path, most: int) -> None:
    """Lower a model for groups of so many threads, and hold its kernels against that."""
    target = _with_groups_of(most)
    options = resolve_options(target, preset="mixed").options
    state = State(model=model, target=target, options=options)
    state, _ = run_stages(state, reporter=SilentReporter(), stop_after="lower")
    assert state.program is not None
    check_kernels(state.program, target.limits)


@pytest.mark.parametrize("most", [48, 8])
def test_every_family_fits(most: int, tmp_path: Path) -> None:
    net = Net()
    for case in SUITE:
        add_to(net, case)
    model = tmp_path / "m.onnx"
    model.write_bytes(net.model())
    _check(model, most)


@pytest.mark.parametrize("most", [32, 4])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_product_of_many_outputs_fits(rows: int, most: int, tmp_path: Path) -> None:
    """Its teams would fill a wave, and there are outputs for any number of them."""
    weights = np.zeros((130, 1000), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 130])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 1000])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = tmp_path / "m.onnx"
    model.write_bytes(helper.make_model(graph).SerializeToString())
    _check(model, most)


def test_heads_that_no_group_can_hold_are_an_error(tmp_path: Path) -> None:
    net = Net()
    add_to(net, next(case for case in CASES if case.family == "cached_attention"))
    model = tmp_path / "m.onnx"
    model.write_bytes(net.model())
    with pytest.raises(TargetError, match=r"no schedule of cached_attention fits .* 2 threads"):
        _check(model, 2)
