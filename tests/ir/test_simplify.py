from collections.abc import Callable

import numpy as np
import pytest
import tvm
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tvm import relax

from adrenoc.importers.relax.values import constant_value, op_name
from adrenoc.passes.rewrites.simplify import simplify
from tests.ir.planning import operators
from tests.stock_tvm import run_on_cpu

op = relax.op
RNG = np.random.default_rng(1)


def const(*shape: int) -> relax.Expr:
    return relax.const(RNG.uniform(0.5, 1.5, shape).astype(np.float32))


def module(shape: tuple[int, ...], build: Callable[..., relax.Expr]) -> tvm.IRModule:
    """`main(x)` of the calls that `build(x)` makes."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(build(x)))
        builder.emit_func_output(result)
    return builder.get()


def simplified(shape: tuple[int, ...], build: Callable[..., relax.Expr]) -> tvm.IRModule:
    """The simplified module, proven to compute the same as before."""
    before = module(shape, build)
    after, _ = simplify(before)
    x = RNG.standard_normal(shape).astype(np.float32)
    for a, b in zip(run_on_cpu(before, [x]), run_on_cpu(after, [x]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    return after


def emit(call: relax.Expr) -> relax.Var:
    """A call whose type the next one asks for."""
    return relax.BlockBuilder.current().emit(call)


def batch_norm(x: relax.Expr, axis: int = 1) -> relax.Expr:
    channels = int(x.ty.shape[axis])
    norm = op.nn.batch_norm(x, *(const(channels) for _ in range(4)), axis=axis, training=False)
    return emit(relax.TupleGetItem(emit(norm), 0))


def conv(x: relax.Expr) -> relax.Expr:
    return emit(op.nn.conv2d(x, const(6, 4, 3, 3), padding=1))


def shared(x: relax.Expr) -> relax.Expr:
    y = conv(x)
    return op.add(batch_norm(y), y)


def channels_last_and_depthwise(x: relax.Expr) -> relax.Expr:
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWOI"}
    return batch_norm(
        emit(op.nn.conv2d(x, const(3, 3, 4, 1), padding=1, groups=4, **layouts)), axis=3
    )


def transposed(x: relax.Expr, groups: int) -> relax.Expr:
    weight = const(4, 6 // groups, 2, 2)
    return batch_norm(emit(op.nn.conv2d_transpose(x, weight, strides=2, groups=groups)))


def movements(x: relax.Expr) -> relax.Expr:
    y = op.reshape(op.reshape(op.expand_dims(x, [0]), (2, 12)), (2, 3, 4))
    y = op.permute_dims(op.permute_dims(y, [2, 0, 1]), [1, 2, 0])
    y = op.strided_slice(y, [1], [0], [3])
    y = op.multiply(op.add(y, relax.const(0.0)), relax.const(1.0))
    return op.nn.relu(op.astype(y, "float32"))


def rows_set_one_by_one(x: relax.Expr) -> relax.Expr:
    """As a loop does."""
    rows, value = relax.const(np.zeros((4, 1, 3), np.float32)), x
    for step in range(4):
        value = emit(op.tanh(value))
        before = [op.strided_slice(rows, [0], [0], [step])] if step else []
        behind = [op.strided_slice(rows, [0, 1], [step + 1, 0], [4, 1])] if step < 3 else []
        rows = emit(op.concat([*before, value, *behind], 0))
    return op.negative(rows)


def very_many(x: relax.Expr, axis: int) -> relax.Expr:
    parts = [emit(op.multiply(x, relax.const(np.float32(i)))) for i in range(2, 67)]
    return op.stack(relax.Tuple(parts), axis)


def slices_of_a_concatenation(x: relax.Expr) -> relax.Expr:
    joined = emit(op.concat([x, emit(op.exp(x)), x], 1))
    within = op.strided_slice(joined, [1], [-5], [-4])
    across = op.strided_slice(joined, [1], [2], [5])
    two = op.strided_slice(joined, [0, 1], [0, 3], [1, 6])
    return op.add(op.add(within, across), two)


def logic_on_constants(x: relax.Expr) -> relax.Expr:
    yes, no = (relax.const(np.array(v)) for v in (True, False))
    either = op.logical_or(op.logical_and(yes, no), yes)
    one, two = (relax.const(np.array(v, np.int32)) for v in (1, 2))
    differ = op.logical_xor(op.not_equal(one, two), no)
    return op.where(op.logical_and(differ, op.logical_not(either)), x, const(2, 3))


IMAGE = (1, 4, 5, 5)
JOINED = {"nn.conv2d": 1, "add": 1}
CASES: dict[str, tuple[tuple[int, ...], Callable[[relax.Expr], relax.Expr], dict[str, int]]] = {
    "batch norm goes into the convolution": (IMAGE, lambda x: batch_norm(conv(x)), JOINED),
    "behind a bias and another factor": (
        IMAGE,
        lambda x: op.add(
            const(6, 1, 1),
            op.multiply(batch_norm(emit(op.add(conv(x), const(1, 6, 1, 1)))), const(6, 1, 1)),
        ),
        JOINED,
    ),
    "a shared convolution keeps its weights": (IMAGE, shared, {**JOINED, "add": 2, "multiply": 1}),
    "a factor that varies over pixels stays": (
        IMAGE,
        lambda x: op.multiply(conv(x), const(1, 6, 1, 5)),
        {"nn.conv2d": 1, "multiply": 1},
    ),
    "factors without a convolution are joined": (
        IMAGE,
        lambda x: op.add(
            op.nn.relu(x), batch_norm(emit(op.multiply(batch_norm(x), const(4, 1, 1))))
        ),
        {"multiply": 1, "add": 2, "nn.relu": 1},
    ),
    "channels last and depthwise": ((1, 5, 5, 4), channels_last_and_depthwise, JOINED),
    "transposed": (IMAGE, lambda x: transposed(x, 1), {"nn.conv2d_transpose": 1, "add": 1}),
    "transposed in groups": (
        IMAGE,
        lambda x: transposed(x, 2),
        {"nn.conv2d_transpose": 1, "add": 1, "multiply": 1},
    ),
    "a matrix product": (
        (3, 4),
        lambda x: op.multiply(op.add(op.matmul(x, const(4, 6)), const(6)), const(6)),
        {"matmul": 1, "add": 1},
    ),
    "constants are folded": (
        (3, 4),
        lambda x: op.add(
            op.matmul(x, op.permute_dims(const(6, 4), [1, 0])),
            op.reshape(op.sqrt(const(2, 3)), (6,)),
        ),
        {"matmul": 1, "add": 1},
    ),
    "movements that move nothing go": ((2, 3, 4), movements, {"nn.relu": 1}),
    "a permutation of extents of one is a reshape": (
        (1, 8, 1, 1),
        lambda x: op.permute_dims(x, [0, 2, 3, 1]),
        {"reshape": 1},
    ),
    "a split becomes slices, and dead ones go": (
        (2, 4),
        lambda x: op.nn.relu(relax.TupleGetItem(emit(op.split(x, [1, 3], axis=1)), 1)),
        {"strided_slice": 1, "nn.relu": 1},
    ),
    "division and subtraction of constants": (
        (2, 4),
        lambda x: op.divide(op.subtract(x, const(4)), const(4)),
        {"add": 1, "multiply": 1},
    ),
    **{
        f"quotients that are rounded stay: {kind}": (
            (2, 4),
            lambda x, kind=kind: getattr(op, kind)(op.divide(x, const(4))),
            {"divide": 1, kind: 1},
        )
        for kind in ("ceil", "floor", "round", "trunc")
    },
    "an input and a constant as outputs": (
        (2, 4),
        lambda x: relax.Tuple([x, const(3), emit(op.nn.relu(x))]),
        {"nn.relu": 1, "": 1},
    ),
    "rows that a loop sets one by one become one concatenation": (
        (1, 1, 3),
        rows_set_one_by_one,
        {"tanh": 4, "concat": 1, "negative": 1},
    ),
    **{
        f"a stack of very many is a concatenation of stacks: {axis}": (
            (3, 2),
            lambda x, axis=axis: very_many(x, axis),
            {"multiply": 65, "stack": 3, "concat": 1},
        )
        for axis in (0, 1, -1)
    },
    # One of a part; the others cut two parts or two axes.
    "a slice of a concatenation reads its parts": (
        (2, 3),
        slices_of_a_concatenation,
        {"exp": 1, "concat": 1, "strided_slice": 3, "add": 2},
    ),
    "logic on constants is computed": ((2, 3), logic_on_constants, {"where": 1}),
    **{
        f"powers of few factors are products: {exponent}": (
            IMAGE,
            lambda x, exponent=exponent: op.power(x, relax.const(np.float32(exponent))),
            {"multiply": exponent - 1},
        )
        for exponent in (2, 3, 5, 8)
    },
    "powers of many factors stay": (
        IMAGE,
        lambda x: op.power(x, relax.const(np.float32(9.0))),
        {"power": 1},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_left_computes_the_same(name):
    shape, build, left = CASES[name]
    assert operators(simplified(shape, build)) == left


@settings(max_examples=12)
@given(
    batch=st.integers(1, 2),
    taps=st.integers(1, 40),
    stride=st.integers(2, 24),
    length=st.integers(40, 99),
    pads=st.tuples(st.integers(0, 30), st.integers(0, 30)),
)
@example(batch=2, taps=33, stride=16, length=97, pads=(0, 0))  # samples at the end that none reads
@example(batch=1, taps=32, stride=8, length=40, pads=(3, 30))
def test_filters_of_one_row_of_samples_fold_their_stride(batch, taps, stride, length, pads):
    def build(x: relax.Expr) -> relax.Expr:
        return op.nn.conv1d(x, const(3, 1, taps), strides=stride, padding=pads)

    left = operators(simplified((batch, 1, length), build))
    blocks = -(-taps // stride) * -(-stride // 4) * 4
    assert ("permute_dims" in left) == (stride >= 4 and blocks <= 2 * taps)


@pytest.mark.parametrize("place", [-1, 2, 3])
@pytest.mark.parametrize("mode", ["clip", "fast"])
def test_reads_of_constants_fold_where_their_place_is_known(place, mode):
    places = relax.const(np.array([place], np.int64))

    def build(x: relax.Expr) -> relax.Expr:
        return op.add(x, op.take(const(3), places, axis=0, mode=mode))

    stays = mode == "fast" and place != 2
    assert ("take" in operators(simplify(module((1,), build))[0])) is stays
    if not stays:
        simplified((1,), build)


def test_dropout_goes_with_a_decision():
    dropped = module((2, 4), lambda x: op.nn.relu(relax.TupleGetItem(emit(op.nn.dropout(x)), 0)))
    after, decisions = simplify(dropped)
    assert operators(after) == {"nn.relu": 1}
    assert [d.taken for d in decisions] == ["removed dropout"]


def names_in(module: tvm.IRModule) -> list[str]:
    return [b.var.name for block in module["main"].body.blocks for b in block.bindings]


def test_names_are_unique_and_the_old_module_is_untouched():
    def build(x: relax.Expr) -> relax.Expr:
        bb = relax.BlockBuilder.current()
        first = bb.emit(op.nn.relu(x), "same")
        return bb.emit(op.exp(bb.emit(op.negative(first), "same")), "same")

    before = module((2, 4), build)
    text = before.script()
    names = names_in(simplify(before)[0])
    assert len(set(names)) == len(names)
    assert before.script() == text


def test_products_of_powers_have_names_of_their_own():
    """Graphs know tensors by names: a second `lv`, as TVM calls what nobody names, is another's."""

    def build(x: relax.Var) -> relax.Var:
        before = relax.BlockBuilder.current().emit(op.add(x, relax.const(np.float32(1.5))), "lv")
        return op.multiply(before, op.power(before, relax.const(np.float32(4))))

    names = names_in(simplify(module(IMAGE, build))[0])
    assert len(names) == len(set(names))


def test_weights_are_scaled_in_the_models_dtype():
    def build(x: relax.Expr) -> relax.Expr:
        weight = relax.const(RNG.standard_normal((4, 6)).astype(np.float16))
        y = op.matmul(op.astype(x, "float16"), weight)
        return op.multiply(y, relax.const(np.full(6, 2, np.float16)))

    after, _ = simplify(module((3, 4), build))
    (block,) = after["main"].body.blocks
    product = next(b.value for b in block.bindings if op_name(b.value) == "relax.matmul")
    assert constant_value(product.args[1]).dtype == np.float16
