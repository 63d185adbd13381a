"""Tensors pinned to float32: where half overflows they do not, and nothing else changes."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from adrenoc.base.errors import PrecisionPolicyError
from adrenoc.compile.pipeline import State
from tests.decided import set_joins
from tests.host.run_op import Ops, execute, relative_error
from tests.ir.planning import run_until


def _overflowing() -> Ops:
    """conv by 5e4, pool, conv by 2e-3: the middle is beyond half."""
    ops = Ops()
    x = ops.input(1, 8, 9, 7)
    big = ops("Conv", x, ops.const(np.full((8, 8, 1, 1), 5e4)))
    pooled = ops("AveragePool", big, kernel_shape=[3, 3])
    back = ops("Conv", pooled, ops.const(np.full((4, 8, 1, 1), 2e-3)))
    ops.output(ops("Relu", ops("MaxPool", back, kernel_shape=[2, 2])))
    return ops


def _compiled(ops: Ops, folder: Path, preset: str, pins: tuple[str, ...]) -> State:
    path = folder / "ops.onnx"
    onnx.save(ops._model(), path)
    said = {"check_ir": True, "keep_float32": False, "float32_tensors": pins}
    return run_until(None, path, "host", preset=preset, **said)


def _error(ops: Ops, state: State, device: Any) -> float:
    (value,) = execute(state, list(ops._inputs.values()), device)
    (expected,) = ops.reference().values()
    return relative_error(value, expected)


@pytest.mark.parametrize("preset", ("mixed", "fp16"))
def test_planes_of_a_pinned_tensor_are_not_stored_in_half(
    ops, device, tmp_path, preset, monkeypatch
):
    """Winograd's algorithm would, so the convolution is computed as it is, in float."""
    set_joins(monkeypatch, winograd=0.0, winograd_three=0.0, winograd_least_launches=0.0)
    big = ops("Conv", ops.input(1, 8, 16, 12), ops.const(np.full((8, 8, 1, 1), 5e4)))
    taps = ops.const(np.full((4, 8, 3, 3), 2e-4))
    ops.output(ops("Conv", big, taps, pads=[1, 1, 1, 1]))
    pinned = _compiled(ops, tmp_path, preset, ("t0",))
    assert _error(ops, pinned, device) < 2e-3


@pytest.mark.parametrize("preset", ("mixed", "fp16", "buffer"))
def test_pins_carry_what_half_cannot(device, tmp_path, preset):
    ops = _overflowing()
    assert not _error(ops, _compiled(ops, tmp_path, preset, ()), device) < 1.0
    pinned = _compiled(ops, tmp_path, preset, ("t0", "t1"))
    assert _error(ops, pinned, device) < 2e-3
    dtypes = {name: p.dtype for name, p in pinned.graph.placements.items()}
    assert dtypes["t0"] == dtypes["t1"] == "float32"
    assert dtypes["t2"] == "float16"
    casts = [d for d in pinned.log if d.taken.startswith("converts on load")]
    assert casts and all("no copy is added" in d.reason for d in casts)
    unpinned = _compiled(ops, tmp_path, preset, ())
    assert len(pinned.program.steps) == len(unpinned.program.steps)


def test_what_a_pin_is_fused_with_is_pinned_too(ops, device, tmp_path):
    x = ops.input(1, 4, 6, 5)
    y = ops("Conv", x, ops.weight(4, 4, 1, 1))
    z = ops("MaxPool", ops("Relu", y), kernel_shape=[2, 2])
    ops.output(ops("Relu", z))
    state = _compiled(ops, tmp_path, "mixed", (y,))
    assert state.graph.placements["t1"].dtype == "float32"
    assert {str(p.value.dtype) for p in state.program.params.values()} == {"float32"}


def test_what_only_moves_keeps_the_dtype(ops, device, tmp_path):
    x = ops.input(1, 4, 6, 8)
    y = ops("MaxPool", ops("Softmax", x, axis=1), kernel_shape=[2, 2])
    moved = ops("Slice", y, ops.ints(1), ops.ints(3), ops.ints(3))
    ops.output(ops("Softmax", ops("MaxPool", moved, kernel_shape=[1, 1]), axis=1))
    state = _compiled(ops, tmp_path, "mixed", (y,))
    dtypes = {name: p.dtype for name, p in state.graph.placements.items()}
    assert dtypes["t1"] == dtypes["t2"] == "float32"
    assert dtypes["t3"] == "float16"


def test_an_unknown_name_is_told_with_the_near_one(tmp_path):
    with pytest.raises(PrecisionPolicyError, match=r"'t00'.*t0"):
        _compiled(_overflowing(), tmp_path, "mixed", ("t00",))


def test_what_becomes_infinite_is_a_decision(ops, tmp_path):
    """Whatever lets such weights through to the kernels."""
    x = ops.input(1, 8, 3, 3)
    ops.output(ops("Conv", x, ops.const(np.full((4, 8, 1, 1), 1e5))))
    state = _compiled(ops, tmp_path, "mixed", ())
    (told,) = [d for d in state.log if d.taken == "infinite in float16"]
    assert "32 of 32 values" in told.reason and "1e+05" in told.reason
    pinned = _compiled(ops, tmp_path, "mixed", ("t0",))
    assert not [d for d in pinned.log if d.taken == "infinite in float16"]


def _block(*, expands: bool) -> Ops:
    """A depthwise convolution beside a 1x1 one, which one kernel computes."""
    ops = Ops(seed=5)
    channels = 8 if expands else 24
    x = ops("Conv", ops.input(1, 3, 28, 28), ops.weight(channels, 3, 3, 3), pads=[1, 1, 1, 1])
    if expands:
        x = ops("Relu", ops("Conv", x, ops.weight(24, 8, 1, 1), ops.weight(24)))
    d = ops("Conv", x, ops.weight(24, 1, 3, 3), ops.weight(24), group=24, pads=[1, 1, 1, 1])
    d = ops("Relu", d)
    if not expands:
        d = ops("Relu", ops("Conv", d, ops.weight(24, 24, 1, 1), ops.weight(24)))
    ops.output(ops("AveragePool", d, kernel_shape=[2, 2], strides=[2, 2]))
    return ops


@pytest.mark.parametrize(
    ("expands", "joined"), [(True, "expand_depthwise_conv2d"), (False, "separable_conv2d")]
)
def test_pinned_convolutions_join_as_others_do(device, tmp_path, expands, joined):
    """Two kernels would cost more than float32 does: the wide tensor between them is written."""
    ops = _block(expands=expands)
    free = _compiled(ops, tmp_path, "mixed", ())
    nodes = [node for node in free.graph.nodes if node.op == joined]
    assert len(nodes) == 1
    pinned = _compiled(ops, tmp_path, "mixed", (nodes[0].output,))
    (node,) = [node for node in pinned.graph.nodes if node.op == joined]
    assert pinned.graph.placements[node.output].dtype == "float32"
    assert _error(ops, pinned, device) < _error(ops, free, device)
    source = _compiled(ops, tmp_path, "mixed", (nodes[0].inputs[0],))
    assert not [node for node in source.graph.nodes if node.op == joined]
    assert _error(ops, source, device) < 2e-3
