from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from adrenoc.importers.relax.values import constant_value, op_name
from adrenoc.passes.rewrites.simplify import simplify
from tests.ir.import_and_run import operators
from tests.stock_tvm import run_on_cpu

op = relax.op
RNG = np.random.default_rng(1)


def const(*shape: int) -> relax.Expr:
    return relax.const(RNG.uniform(0.5, 1.5, shape).astype(np.float32))


def module(shape: tuple[int, ...], build: Callable[..., relax.Expr]) -> tvm.IRModule:
    """`main(x)` of the calls that `build(builder, x)` emits."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(build(builder, x))
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


def batch_norm(bb: relax.BlockBuilder, x: relax.Expr, axis: int = 1) -> relax.Expr:
    channels = int(x.ty.shape[axis])
    norm = op.nn.batch_norm(x, *(const(channels) for _ in range(4)), axis=axis, training=False)
    return bb.emit(relax.TupleGetItem(bb.emit(norm), 0))


def conv(bb: relax.BlockBuilder, x: relax.Expr, **options: object) -> relax.Expr:
    return bb.emit(op.nn.conv2d(x, const(6, 4, 3, 3), padding=1, **options))


def test_batch_norm_goes_into_the_convolution():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return batch_norm(bb, conv(bb, x))

    assert operators(simplified((1, 4, 5, 5), build)) == {"nn.conv2d": 1, "add": 1}


def test_batch_norm_behind_a_bias_and_another_factor():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = batch_norm(bb, bb.emit(op.add(conv(bb, x), const(1, 6, 1, 1))))
        y = bb.emit(op.multiply(y, const(6, 1, 1)))
        return bb.emit(op.add(const(6, 1, 1), y))

    assert operators(simplified((1, 4, 5, 5), build)) == {"nn.conv2d": 1, "add": 1}


def test_shared_convolution_keeps_its_weights():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = conv(bb, x)
        return bb.emit(op.add(batch_norm(bb, y), y))

    assert operators(simplified((1, 4, 5, 5), build))["multiply"] == 1


def test_factor_that_varies_over_pixels_stays():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return bb.emit(op.multiply(conv(bb, x), const(1, 6, 1, 5)))

    assert operators(simplified((1, 4, 5, 5), build))["multiply"] == 1


def test_factors_without_a_convolution_are_joined():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = bb.emit(op.multiply(batch_norm(bb, x), const(4, 1, 1)))
        return bb.emit(op.add(bb.emit(op.nn.relu(x)), batch_norm(bb, y)))

    made = operators(simplified((1, 4, 5, 5), build))
    assert made == {"multiply": 1, "add": 2, "nn.relu": 1}


def test_channels_last_and_depthwise():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = op.nn.conv2d(
            x, const(3, 3, 4, 1), padding=1, groups=4, data_layout="NHWC", kernel_layout="HWOI"
        )
        return batch_norm(bb, bb.emit(y), axis=3)

    assert operators(simplified((1, 5, 5, 4), build)) == {"nn.conv2d": 1, "add": 1}


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolution(groups):
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = op.nn.conv2d_transpose(x, const(4, 6 // groups, 2, 2), strides=2, groups=groups)
        return batch_norm(bb, bb.emit(y))

    left = operators(simplified((1, 4, 5, 5), build))["multiply"]
    assert left == (0 if groups == 1 else 1)


def test_matrix_product():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = bb.emit(op.add(bb.emit(op.matmul(x, const(4, 6))), const(6)))
        return bb.emit(op.multiply(y, const(6)))

    assert operators(simplified((3, 4), build)) == {"matmul": 1, "add": 1}


def test_constants_are_folded():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        weight = bb.emit(op.permute_dims(const(6, 4), [1, 0]))
        bias = bb.emit(op.reshape(bb.emit(op.sqrt(const(2, 3))), (6,)))
        return bb.emit(op.add(bb.emit(op.matmul(x, weight)), bias))

    assert operators(simplified((3, 4), build)) == {"matmul": 1, "add": 1}


@pytest.mark.parametrize("place", [-1, 2, 3])
@pytest.mark.parametrize("mode", ["clip", "fast"])
def test_reads_of_constants_fold_where_their_place_is_known(place, mode):
    places = relax.const(np.array([place], np.int64))

    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return bb.emit(op.add(x, bb.emit(op.take(const(3), places, axis=0, mode=mode))))

    before = module((1,), build)
    stays = mode == "fast" and place != 2
    assert ("take" in operators(simplify(before)[0])) is stays
    if not stays:
        simplified((1,), build)


def test_movements_that_move_nothing_go():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = bb.emit(op.reshape(bb.emit(op.expand_dims(x, [0])), (2, 12)))
        y = bb.emit(op.reshape(y, (2, 3, 4)))
        y = bb.emit(op.permute_dims(bb.emit(op.permute_dims(y, [2, 0, 1])), [1, 2, 0]))
        y = bb.emit(op.strided_slice(y, [1], [0], [3]))
        y = bb.emit(op.multiply(bb.emit(op.add(y, relax.const(0.0))), relax.const(1.0)))
        return bb.emit(op.nn.relu(bb.emit(op.astype(y, "float32"))))

    assert operators(simplified((2, 3, 4), build)) == {"nn.relu": 1}


def test_permutation_of_extents_of_one_is_a_reshape():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return bb.emit(op.permute_dims(x, [0, 2, 3, 1]))

    assert operators(simplified((1, 8, 1, 1), build)) == {"reshape": 1}


def test_split_becomes_slices_and_dead_ones_go():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        parts = bb.emit(op.split(x, [1, 3], axis=1))
        return bb.emit(op.nn.relu(bb.emit(relax.TupleGetItem(parts, 1))))

    assert operators(simplified((2, 4), build)) == {"strided_slice": 1, "nn.relu": 1}


def test_division_and_subtraction_of_constants():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return bb.emit(op.divide(bb.emit(op.subtract(x, const(4))), const(4)))

    assert operators(simplified((2, 4), build)) == {"add": 1, "multiply": 1}


@pytest.mark.parametrize("kind", ["ceil", "floor", "round", "trunc"])
def test_quotients_that_are_rounded_stay(kind):
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return bb.emit(getattr(op, kind)(bb.emit(op.divide(x, const(4)))))

    assert operators(simplified((2, 4), build)) == {"divide": 1, kind: 1}


def test_dropout_goes_with_a_decision():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        dropped = bb.emit(relax.TupleGetItem(bb.emit(op.nn.dropout(x, 0.5)), 0))
        return bb.emit(op.nn.relu(dropped))

    after, decisions = simplify(module((2, 4), build))
    assert operators(after) == {"nn.relu": 1}
    assert [d.taken for d in decisions] == ["removed dropout"]


def test_input_and_constant_as_outputs():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return relax.Tuple([x, const(3), bb.emit(op.nn.relu(x))])

    simplified((2, 4), build)


def test_names_are_unique_and_the_old_module_is_untouched():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        first = bb.emit(op.nn.relu(x), "same")
        return bb.emit(op.exp(bb.emit(op.negative(first), "same")), "same")

    before = module((2, 4), build)
    text = before.script()
    after, _ = simplify(before)
    (block,) = after["main"].body.blocks
    names = [b.var.name for b in block.bindings]
    assert len(set(names)) == len(names)
    assert before.script() == text


def test_weights_are_scaled_in_the_models_dtype():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        half = bb.emit(op.astype(x, "float16"))
        weight = relax.const(RNG.standard_normal((4, 6)).astype(np.float16))
        y = bb.emit(op.matmul(half, weight))
        return bb.emit(op.multiply(y, relax.const(np.full(6, 2, np.float16))))

    after, _ = simplify(module((3, 4), build))
    (block,) = after["main"].body.blocks
    product = next(b.value for b in block.bindings if op_name(b.value) == "relax.matmul")
    weight = constant_value(product.args[1])
    assert weight.dtype == np.float16


def test_rows_that_a_loop_sets_one_by_one_become_one_concatenation():
    def build(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        rows = relax.const(np.zeros((4, 1, 3), np.float32))
        value = x
        for step in range(4):
            value = builder.emit(op.tanh(value))
            parts = [
                builder.emit(op.strided_slice(rows, [0], [0], [step])) if step else None,
                value,
                builder.emit(op.strided_slice(rows, [0, 1], [step + 1, 0], [4, 1]))
                if step < 3
                else None,
            ]
            rows = builder.emit(op.concat([p for p in parts if p is not None], 0))
        return builder.emit(op.negative(rows))

    made = operators(simplified((1, 1, 3), build))
    assert made == {"tanh": 4, "concat": 1, "negative": 1}


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_stack_of_very_many_is_a_concatenation_of_stacks(axis):
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        parts = [bb.emit(op.multiply(x, relax.const(np.float32(i)))) for i in range(2, 67)]
        return bb.emit(op.stack(relax.Tuple(parts), axis))

    after = simplified((3, 2), build)
    assert operators(after) == {"multiply": 65, "stack": 3, "concat": 1}


def test_slice_of_a_concatenation_reads_its_parts():
    def build(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        other = builder.emit(op.exp(x))
        joined = builder.emit(op.concat([x, other, x], 1))
        within = builder.emit(op.strided_slice(joined, [1], [-5], [-4]))
        across = builder.emit(op.strided_slice(joined, [1], [2], [5]))
        two = builder.emit(op.strided_slice(joined, [0, 1], [0, 3], [1, 6]))
        return builder.emit(op.add(builder.emit(op.add(within, across)), two))

    made = operators(simplified((2, 3), build))
    assert made["strided_slice"] == 3  # one of a part; the others cut two parts or two axes


def test_logic_on_constants_is_computed():
    def build(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        yes, no = (relax.const(np.array(v)) for v in (True, False))
        either = builder.emit(op.logical_or(builder.emit(op.logical_and(yes, no)), yes))
        one, two = (relax.const(np.array(v, np.int32)) for v in (1, 2))
        differ = builder.emit(op.logical_xor(builder.emit(op.not_equal(one, two)), no))
        both = builder.emit(op.logical_and(differ, builder.emit(op.logical_not(either))))
        return builder.emit(op.where(both, x, const(2, 3)))

    assert set(operators(simplified((2, 3), build))) == {"where"}


@pytest.mark.parametrize("exponent", [2.0, 3.0, 5.0, 8.0])
def test_powers_of_few_factors_are_products(exponent):
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return bb.emit(op.power(x, relax.const(np.float32(exponent))))

    assert operators(simplified((1, 4, 5, 5), build)) == {"multiply": int(exponent) - 1}


def test_products_of_powers_have_names_of_their_own():
    """Graphs know tensors by names: a second `lv`, as TVM calls what nobody names, is another's."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Var:
        before = bb.emit(op.add(x, relax.const(np.float32(1.5))), "lv")
        return bb.emit(op.multiply(before, bb.emit(op.power(before, relax.const(np.float32(4))))))

    simplified, _ = simplify(module((1, 4, 5, 5), build))
    names = [b.var.name for block in simplified["main"].body.blocks for b in block.bindings]
    assert len(names) == len(set(names))


def test_powers_of_many_factors_stay():
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return bb.emit(op.power(x, relax.const(np.float32(9.0))))

    assert operators(simplify(module((1, 4, 5, 5), build))[0])["power"] == 1
