"""Reductions, softmax and norms by teams of threads: the same numbers, however lines are shared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from run_op import Ops

from adrenoc.kernels.families.shared import row_tile as rows
from adrenoc.kernels.families.shared.row_tile import RowWork
from adrenoc.kernels.families.shared.rows import Members, RowTile
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Limits

pytestmark = pytest.mark.operator

SHAPE = (2, 7, 9, 13)


@pytest.fixture(params=[("x", 8, 2), ("x", 32, 1), ("y", 4, 4), ("y", 16, 3)])
def forced(request: Any, monkeypatch: pytest.MonkeyPatch) -> RowTile:
    """A tile that every line kernel gets, whether it suits it or not."""
    along, team, rows_beside = request.param
    members = Members(along)
    group = (team, rows_beside, 1) if members is Members.ALONG_X else (rows_beside, team, 1)
    tile = RowTile(work_group=group, members=members)

    def candidates(_work: RowWork, _limits: Limits, _costs: Cost) -> Iterator[RowTile]:
        yield tile

    monkeypatch.setattr(rows, "candidates", candidates)
    return tile


@pytest.mark.parametrize("preset", ("fp32", "buffer"))
def test_reductions(device: Any, preset: str, forced: RowTile) -> None:
    ops = Ops()
    y = ops("Sigmoid", ops.input(*SHAPE))
    for kind, axes in (("Mean", (2, 3)), ("Max", (1,)), ("Sum", (1, 2, 3)), ("Prod", (3,))):
        ops.output(ops(f"Reduce{kind}", y, ops.ints(*axes), keepdims=1))
    ops.output(ops("GlobalAveragePool", y))
    ops.check(device, preset)


@pytest.mark.parametrize("preset", ("fp32", "buffer"))
def test_softmax(device: Any, preset: str, forced: RowTile) -> None:
    ops = Ops()
    x = ops("Mul", ops.input(*SHAPE, low=-8.0, high=8.0), ops.const(2.0))
    for axis in (1, 3):
        ops.output(ops("Softmax", x, axis=axis))
    ops.check(device, preset)


@pytest.mark.parametrize("preset", ("fp32", "buffer"))
def test_norms(device: Any, preset: str, forced: RowTile) -> None:
    ops = Ops(opset=21)
    x = ops("Tanh", ops.input(2, 8, 9, 5))
    ops.output(ops("InstanceNormalization", x, ops.weight(8), ops.weight(8)))
    ops.output(ops("GroupNormalization", x, ops.weight(8), ops.weight(8), num_groups=2))
    tokens = ops("Tanh", ops.input(1, 19, 22))
    ops.output(ops("LayerNormalization", tokens, ops.weight(22), ops.weight(22)))
    ops.check(device, preset)
