"""Sums, inverses, integers, rotations and recurrent layers: kernels of their own."""

from typing import Any

import numpy as np
import pytest

from adrenoc.base.errors import UnsupportedOperatorError
from tests.host.run_op import Ops, check_relax

pytestmark = pytest.mark.operator

EVERY = [(exclusive, reverse) for exclusive in (0, 1) for reverse in (0, 1)]


def _scanned(ops: Ops, x: str, axis: int, exclusive: int = 0, reverse: int = 0) -> str:
    return ops("CumSum", x, ops.const(axis, np.int64), exclusive=exclusive, reverse=reverse)


def test_every_axis_both_ways(ops, device, preset):
    y = ops("Sigmoid", ops.input(2, 7, 5, 6))
    for axis in (0, 1, 2, -1):
        ops.output(*(_scanned(ops, y, axis, *ways) for ways in EVERY))
    ops.check(device, preset)
    assert ops.fallbacks == []
    assert ops.kernels.count("cumsum") == 4 * len(EVERY)


@pytest.mark.parametrize("preset", ("fp32", "fp16"))
def test_every_rank_and_what_stands_around(ops, device, preset):
    """Lanes beyond the last channel hold zeros: a sum over channels would show others."""
    for shape in ((11,), (3, 10), (1, 9, 6), (2, 3, 1, 5, 3)):
        x = ops.input(*shape)
        for axis in range(len(shape)):
            y = _scanned(ops, ops("Exp", x), axis)
            ops.output(ops("Tanh", ops("Mul", y, ops.const(0.25))))
            ops.output(ops("ReduceSum", ops("Cos", y), ops.ints(min(1, len(shape) - 1))))
    ops.check(device, preset)
    assert ops.fallbacks == []


@pytest.mark.parametrize("preset", ("fp32", "mixed", "fp16"))
def test_long_rows(ops, device, preset):
    tokens = ops.input(1, 4096, 3)
    ops.output(_scanned(ops, ops("Relu", tokens), 1), _scanned(ops, ops.input(2, 5000, low=0), 1))
    ops.check(device, preset)
    assert ops.kernels.count("cumsum") == 2


def test_whole_numbers_are_a_loop_nest(ops, device):
    """Positions of tokens, as language models count them."""
    mask = ops.whole_input(2, 17, count=2, dtype=np.int32)
    ops.output(_scanned(ops, ops("Mul", mask, ops.const(3, np.int32)), 1))
    ops.check(device, "mixed")
    assert [reason.partition(":")[0] for reason in ops.fallbacks] == ["cumsum as a plain loop nest"]


@pytest.mark.parametrize("axis", (1, 2))
def test_products(device, axis):
    from tvm import relax

    x = np.random.default_rng(3).uniform(0.8, 1.2, (1, 6, 7, 5)).astype(np.float32)
    for exclusive in (False, True):
        state = check_relax(
            device, lambda x, e=exclusive: relax.op.cumprod(x, axis, "float32", e), x, preset="fp32"
        )
        assert any(kernel.family == "cumprod" for kernel in state.program.kernels.values())


DOMAIN = "com.microsoft"


def _inverted(ops: Ops, *shape: int, shift: float = 4.0) -> str:
    """Invert what is far enough from singular for halves, with its rows in another order."""
    rows = shape[-1]
    near = ops("Add", ops.input(*shape), ops.const(shift * np.eye(rows, dtype=np.float32)[::-1]))
    return ops("Inverse", near, domain=DOMAIN)


@pytest.mark.parametrize("rows", [1, 3, 4, 7, 8])
def test_small_matrices_are_one_kernel(ops, device, preset, rows):
    ops.output(ops("Tanh", _inverted(ops, 3, rows, rows)), _inverted(ops, rows, rows))
    ops.output(_inverted(ops, 2, 3, rows, rows))
    ops.check(device, preset)
    assert ops.fallbacks == []
    assert ops.kernels.count("inverse") == 3


def test_pivots_are_taken_from_other_rows(ops, device):
    ops.output(_inverted(ops, 5, 5, 5, shift=0.0))
    ops.check(device, "fp32", tolerance=1e-3)


def test_larger_ones_are_plain_loops(ops, device):
    ops.output(_inverted(ops, 2, 11, 11))
    ops.check(device, "fp32")
    assert "inverse" not in ops.kernels


KINDS = ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceSumSquare")
VALUES = {
    "beyond the dtype": [[2**31 - 1, 5, 3, 16777217, 0, 7], [-(2**31), -5, 2**20, 1, 3, 4]],
    "of products": [[40000, -40001, 39999, 1, -1, 2], [-40000, -40001, 0, 3, 5, 7]],
    "within it": [[16777217, -2, 4, 6, 8, 1], [33554433, 1, -1, 1, 1, 1]],
}


@pytest.mark.parametrize("values", VALUES)
def test_int32_ends_where_its_dtype_does(ops, device, values):
    x = ops.whole_input(2, 6, count=9, dtype=np.int32)
    ops.given(x, np.array(VALUES[values], np.int32))
    for kind in KINDS:
        ops.output(ops(kind, x, ops.ints(1), keepdims=0), ops(kind, x, ops.ints(0)), ops(kind, x))
    for name, seen in ops.run(device, "mixed").items():
        np.testing.assert_array_equal(seen, ops.reference()[name], err_msg=ops._path_to(name))


@pytest.mark.parametrize("kind", ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare"])
def test_without_axes_each_number_is_mapped(ops, device, kind):
    ops.output(ops(kind, ops.input(3, 5, low=0.5, high=2.0), noop_with_empty_axes=1))
    ops.check(device, "fp32")


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("diagonal", [-2, 0, 9])
def test_triangle_of_a_diagonal_that_is_data(ops, device, upper, diagonal):
    x, k = ops.input(2, 4, 5), ops.whole_input(count=1)
    ops.given(k, np.array(diagonal, np.int64))
    ops.output(ops("Trilu", x, k, upper=upper))
    ops.check(device, "fp32")


CASES: dict[str, tuple[tuple[int, ...], int, list[Any], dict[str, int]]] = {
    "one token": ((1, 1, 64), 16, [[7]], {}),
    "tokens": ((1, 5, 64), 16, [[3, 4, 5, 6, 9]], {}),
    "from the first one's": ((1, 5, 64), 16, [2], {}),
    "two texts": ((2, 3, 32), 16, [[0, 1, 2], [5, 6, 7]], {}),
    "heads apart": ((1, 4, 5, 16), 16, [[3, 4, 5, 6, 9]], {}),
    "heads apart, from the first one's": ((2, 4, 5, 16), 16, [3], {}),
    "neighbours": ((1, 5, 64), 16, [[3, 4, 5, 6, 9]], {"interleaved": 1}),
    "a part of a head": (
        (1, 5, 96),
        16,
        [[3, 4, 5, 6, 9]],
        {"num_heads": 3, "rotary_embedding_dim": 16},
    ),
    "neighbours of a part": (
        (1, 2, 96),
        8,
        [[3, 4]],
        {"num_heads": 3, "rotary_embedding_dim": 8, "interleaved": 1},
    ),
}


@pytest.mark.parametrize("preset", ["fp32", "mixed"])
def test_rotary_embedding(ops, device, preset):
    for shape, rotated, positions, attrs in CASES.values():
        angles = np.arange(12)[:, None] * 10.0 ** -np.arange(rotated // 2)
        tables = [ops.const(turn(angles)) for turn in (np.cos, np.sin)]
        inputs = [ops("Relu", ops.input(*shape)), ops.const(positions, np.int64), *tables]
        ops.output(ops("RotaryEmbedding", *inputs, domain=DOMAIN, **attrs))
    ops.check(device, preset)


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
NAMES = {"RNN": ["y", "last"], "GRU": ["y", "last"], "LSTM": ["y", "last", "cell"]}


def _layer(
    ops: Ops, kind: str, *, units: int, batch: int = 1, steps: int = 5, given: str = "", **attrs
) -> list[str]:
    """All outputs of a layer; `given` are `b`iases, first `s`tates and `p`eepholes."""
    ways = 2 if attrs.get("direction") == "bidirectional" else 1
    rows, depth = GATES[kind] * units, 7
    operands = [ops("Tanh", ops.input(steps, batch, depth))]
    operands += [ops.weight(ways, rows, depth), ops.weight(ways, rows, units)]
    operands += [ops.weight(ways, 2 * rows) if "b" in given else "", ""]
    if "s" in given:
        operands += [ops.weight(ways, batch, units) for _ in range(1 + (kind == "LSTM"))]
    if "p" in given:
        operands += [""] * (7 - len(operands)) + [ops.weight(ways, 3 * units)]
    names = list("yhc"[: 2 + (kind == "LSTM")])
    return ops.several(kind, operands, names, hidden_size=units, **attrs)


RECURRENT: dict[str, dict[str, Any]] = {
    "lstm": {"kind": "LSTM", "units": 64, "given": "b"},
    "lstm of one unit and step": {"kind": "LSTM", "units": 1, "steps": 1, "given": "bs"},
    "lstm with all, both ways": {
        "kind": "LSTM",
        "units": 10,
        "batch": 3,
        "given": "bsp",
        "direction": "bidirectional",
    },
    "lstm that clips": {"kind": "LSTM", "units": 12, "given": "bs", "batch": 2, "clip": 0.3},
    "lstm that clips what sees the cell": {"kind": "LSTM", "units": 9, "given": "bsp", "clip": 0.2},
    "gru that clips": {"kind": "GRU", "units": 9, "given": "b", "clip": 0.3},
    "gru": {"kind": "GRU", "units": 20, "given": "b", "direction": "reverse"},
    "gru that resets after": {
        "kind": "GRU",
        "units": 33,
        "given": "bs",
        "batch": 2,
        "linear_before_reset": 1,
    },
    "gru without biases": {"kind": "GRU", "units": 6, "linear_before_reset": 1},
    "rnn": {"kind": "RNN", "units": 12, "given": "bs", "activations": ["Relu"]},
    "rnn of lanes that are not zero": {"kind": "RNN", "units": 5, "activations": ["Sigmoid"]},
}


@pytest.mark.parametrize("preset", ("fp32", "mixed", "buffer"))
@pytest.mark.parametrize("case", RECURRENT.values(), ids=RECURRENT)
def test_a_sequence_is_one_kernel(ops, device, case, preset):
    for name in _layer(ops, **case):
        ops.output(ops("Cos", name))
    ops.check(device, preset)
    assert ops.fallbacks == []
    ways = 2 if case.get("direction") == "bidirectional" else 1
    assert ops.kernels.count("recurrent") == ways


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("kind", GATES)
def test_computed_weights_run_on_the_cpu(device, kind, after, steps):
    ops, units = Ops(), 5
    rows = GATES[kind] * units
    shapes = ((1, rows, 4), (1, rows, units), (1, 2 * rows))
    weights = [ops("Tanh", ops.input(*shape)) for shape in shapes]
    attrs = {"linear_before_reset": after} if kind == "GRU" else {}
    given = [ops.input(steps, 2, 4), *weights]
    for one in ops.several(kind, given, NAMES[kind], hidden_size=units, **attrs):
        ops.output(one)
    ops.check(device, "fp32")
    assert "recurrent" not in ops.kernels
    assert len(ops.fallbacks) == 1
    assert "is computed, expected constant weights" in ops.fallbacks[0]


@pytest.mark.parametrize("kind, units, held", [("RNN", 1100, True), ("LSTM", 1400, False)])
def test_layers_of_more_units_than_local_memory_holds_run_on_the_cpu(
    ops, device, kind, units, held
):
    for name in _layer(ops, kind, units=units, steps=2, given="b"):
        ops.output(name)
    ops.check(device, "fp32")
    assert len(ops.fallbacks) == (not held) and ops.kernels.count("recurrent") == held
    if not held:
        assert "bytes of local memory, and some GPUs have 16384" in ops.fallbacks[0]


@pytest.mark.parametrize("is_computed", [False, True])
def test_the_last_cell_where_nobody_reads_the_states(ops, device, is_computed):
    gates = [ops.weight(1, 20, 4), ops.weight(1, 20, 5)]
    gates = [ops("Tanh", ops.input(1, 20, 4)), gates[1]] if is_computed else gates
    _, last, cell = ops.several(
        "LSTM", [ops.input(1, 2, 4), *gates], ["", "last", "cell"], hidden_size=5
    )
    for one in (last, cell):
        ops.output(one)
    ops.check(device, "fp32")


def test_cells_that_bounded_gates_cannot_hold_are_refused(ops):
    lengths = ops.const(np.array([3, 1]), np.int32)
    given = [ops.input(3, 2, 4), ops.weight(1, 20, 4), ops.weight(1, 20, 5), "", lengths]
    for one in ops.several("LSTM", given, ["y", "state", "cell"], hidden_size=5, clip=0.2):
        ops.output(one)
    with pytest.raises(UnsupportedOperatorError, match="can hold no cell behind their ends"):
        ops.check(None, "fp32")


@pytest.mark.parametrize("is_input", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_sequences_that_end_early_are_one_kernel(ops, device, kind, direction, is_input):
    """States, last states and cells, with first ones."""
    steps, batch, units = 6, 4, 5
    ways = 2 if direction == "bidirectional" else 1
    ends = np.array([6, 1, 3, 4], np.int32)
    if is_input:
        lengths = ops.whole_input(batch, count=1, dtype=np.int32)
        ops.given(lengths, ends)
    else:
        lengths = ops.const(ends, np.int32)
    x, parts = ops.input(steps, batch, 3), GATES[kind] * units
    weights = [ops.weight(ways, parts, 3), ops.weight(ways, parts, units)]
    weights.append(ops.weight(ways, 2 * parts))
    states = [ops.input(ways, batch, units) for _ in range(2 if kind == "LSTM" else 1)]
    names = ["y", "last", "cell"][: len(states) + 1]
    given = [x, *weights, lengths, *states]
    for one in ops.several(kind, given, names, hidden_size=units, direction=direction):
        ops.output(one)
    ops.check(device, "fp32")
    assert ops.kernels.count("recurrent") == ways
    assert not [d for d in ops.decisions if "for each step" in d.taken]


def test_steps_take_no_more_launches(device):
    counts = []
    for steps in (3, 300):
        ops = Ops()
        ops.output(_layer(ops, "LSTM", units=8, steps=steps, given="b")[0])
        ops.check(device, "fp32")
        counts.append(len(ops.kernels))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("preset", ("fp32", "mixed"))
def test_layers_of_files_in_halves_are_one_kernel(device, kind, preset):
    """As converters to float16 leave them; onnxruntime computes these in float, too."""
    ops, units, draw = Ops(), 12, np.random.default_rng(3)

    def half(*shape: int) -> str:
        return ops.const(draw.uniform(-0.5, 0.5, shape), np.float16)

    rows = GATES[kind] * units
    operands = [ops("Cast", ops.input(40, 2, 7), to=10), half(2, rows, 7), half(2, rows, units)]
    operands += [half(2, 2 * rows), "", half(2, 2, units)]
    made = ops.several(kind, operands, ["y", "h"], hidden_size=units, direction="bidirectional")
    for name in made:
        ops.output(ops("Cos", ops("Cast", name, to=1)))
    ops.check(device, preset, tolerance=2e-3)
    assert ops.kernels.count("recurrent") == 2


def test_ends_without_first_states(ops, device):
    x, lengths = ops.input(5, 2, 3), ops.const(np.array([5, 2]), np.int32)
    given = [x, ops.weight(1, 15, 3), ops.weight(1, 15, 5), "", lengths]
    for one in ops.several("GRU", given, ["y", "last"], hidden_size=5):
        ops.output(one)
    ops.check(device, "mixed")
    assert ops.kernels.count("recurrent") == 1


def test_what_an_epilogue_reads_is_no_first_state(ops, device):
    given = [ops.input(5, 1, 3), ops.weight(1, 24, 3), ops.weight(1, 24, 8)]
    (states,) = ops.several("GRU", given, ["y"], hidden_size=8)
    shape = ops.ints(1, 5, 8)
    chosen = ops.const(np.random.default_rng(1).uniform(size=(1, 5, 8)) < 0.7, bool)
    kept = ops("Where", chosen, ops("Reshape", states, shape), ops.input(1, 5, 8))
    ops.output(ops("Cos", kept))
    ops.check(device, "mixed")
    assert ops.kernels.count("recurrent") == 1


def test_gates_are_exact_where_what_reads_states_lies_in_half(ops, device):
    """A gate of nearly one hands on all but a little, so that what it is off by adds up."""
    x = ops.input(200, 1, 7)
    biases = ops.const(np.repeat([[6.0, 0, 1, 0, 0, 1]], 16, axis=1))
    given = [x, ops.weight(1, 48, 7), ops.weight(1, 48, 16), biases]
    (states,) = ops.several("GRU", given, ["states"], hidden_size=16)
    rows = ops("Squeeze", states, ops.ints(1))
    ops.output(ops("MatMul", rows, ops.weight(16, 8)))
    ops.check(device, "mixed", tolerance=1e-3)
