"""Norms: which axes share their statistics, and factors and offsets along each."""

import numpy as np
import pytest

from adrenoc.bundle.bundle import open_bundle
from tests.commands import succeed
from tests.host.run_op import Ops
from tests.tflite.build import ModelBuilder, T

pytestmark = pytest.mark.operator


def test_layer_norm(ops, device, preset):
    for shape, axis in (
        ((2, 9, 30), -1),
        ((2, 5, 6, 7), -1),
        ((2, 5, 3, 4), 1),
        ((2, 5, 3, 4), 2),
        ((2, 5, 3, 4), 0),  # the factor differs along the batch too
        ((6, 8), 1),
    ):
        x = ops.input(*shape, low=2.0, high=6.0)
        affine = shape[axis:]
        y = ops(
            "LayerNormalization",
            x,
            ops.weight(*affine, around=1.0),
            ops.weight(*affine),
            axis=axis,
            epsilon=1e-3,
        )
        ops.output(ops("Relu", y))
    ops.check(device, preset)
    assert ops.fallbacks == []


def test_instance_norm(ops, device, preset):
    for channels in (3, 8):
        x = ops.input(2, channels, 6, 5, low=-3.0, high=1.0)
        ops.output(ops("InstanceNormalization", x, ops.weight(channels), ops.weight(channels)))
    ops.check(device, preset)


def test_group_norm(device, preset):
    ops = Ops(opset=21)
    for channels, groups in ((16, 2), (12, 3), (6, 1), (6, 3), (5, 5)):
        x = ops.input(2, channels, 3, 5, low=-1.0, high=3.0)
        ops.output(
            ops(
                "GroupNormalization",
                x,
                ops.weight(channels),
                ops.weight(channels),
                num_groups=groups,
            )
        )
    ops.check(device, preset)


def test_far_from_zero(ops, device):
    """The mean is a thousand deviations: squares alone would leave no digit of the variance."""
    x = ops.input(2, 3, 40, low=999.0, high=1001.0)
    ops.output(ops("LayerNormalization", x, ops.const([1.0] * 40), ops.const([0.0] * 40)))
    ops.check(device, "fp32", tolerance=1e-4)


@pytest.mark.parametrize("preset", ("fp32", "mixed"))
def test_cases_without_a_kernel_run_in_parts(ops, device, preset):
    """Factors that are computed, and more axes than a texture has roles."""
    x, factor = ops.input(2, 6, 5, low=1.0, high=3.0), ops.input(5)
    y = ops("LayerNormalization", x, ops("Sigmoid", factor), factor, epsilon=1e-2)
    wide = ops.input(2, 3, 2, 3, 5)
    z = ops("LayerNormalization", wide, ops.weight(3, 5), ops.weight(3, 5), axis=3)
    ops.output(y, ops("Relu", z))
    ops.check(device, preset)
    in_parts = [reason for reason in ops.fallbacks if reason.startswith("layer_norm in parts")]
    assert len(in_parts) == 2
    assert "computed" in in_parts[0]
    assert "too many extents above one" in in_parts[1]


@pytest.mark.parametrize("preset", ("fp32", "mixed"))
@pytest.mark.parametrize(
    "op", ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
)
def test_factors_are_spread_over_what_is_normed(device, preset, op):
    """Cohere's norms have a factor for each number of each head, other files one for all."""
    ops = Ops(opset=23)
    x = ops.input(2, 4, 16)
    for shape in ([4, 16], [1, 16], [4, 1], [1], [2, 4, 16], [2, 1, 1]):
        ops.output(ops("Relu", ops(op, x, ops.weight(*shape, around=1.0), axis=-1)))
    if op == "LayerNormalization":
        offset = ops.weight(4, 16)
        ops.output(ops(op, x, ops.weight(16, around=1.0), offset, axis=-1))
        ops.output(ops(op, x, ops.weight(4, 16, around=1.0), ops.weight(16), axis=1))
        square = ops.input(3, 5, 5)  # whose axes no shape tells apart
        ops.output(ops(op, square, ops.weight(5, 5, around=1.0), axis=-1))
        ops.output(ops(op, square, ops.weight(5, around=1.0), axis=1))
    ops.check(device, preset)
    assert not ops.fallbacks


def test_norm_with_one_constant_for_factor_and_offset(ops, device):
    x, z = ops.input(2, 5, 8), ops.input(2, 5, 8)
    g = ops.weight(8, around=1.0)
    ops.output(ops("Relu", ops("Add", ops("LayerNormalization", x, g, g, axis=-1), z)))
    ops.check(device, "fp32")


@pytest.mark.parametrize("preset", ("fp32", "mixed"))
def test_constants_of_rank_five(ops, device, preset):
    """No block of channels holds five axes, of constants neither."""
    normed = ops("InstanceNormalization", ops.weight(2, 6, 3, 5, 2), ops.weight(6), ops.weight(6))
    ops.output(ops("Add", normed, ops.input(2, 6, 3, 5, 2)))
    ops.check(device, preset)


def keras_layer_norm() -> bytes:
    """A layer norm as Keras 3 writes it to TFLite, of a tensor far from zero, and a product."""
    made = ModelBuilder()
    graph = made.graph()
    random = np.random.default_rng(4)
    x = graph.add(T(data=random.standard_normal((1, 16, 48)).astype(np.float32) + 30), "x")

    def constant(value, dtype: str = "float32") -> int:
        return graph.add(T(dtype=dtype, is_constant=True, data=np.asarray(value, dtype)))

    def op(kind: str, *inputs: int, width: int = 48, options: str = "", **fields) -> int:
        shape = T(shape=(1, 16, width))
        return int(graph.op(kind, list(inputs), [shape], options, fields)[0])

    def mean(of: int) -> int:
        axis = constant([2], "int32")
        return op("MEAN", of, axis, width=1, options="ReducerOptions", keepDims=True)

    center = mean(x)
    spread = mean(op("SQUARED_DIFFERENCE", x, center))
    scale = op("RSQRT", op("ADD", spread, constant(1e-3), width=1), width=1)
    scale = op("MUL", scale, constant(random.uniform(0.5, 1.5, (1, 1, 48))))
    moved = op("MUL", op("NEG", center, width=1), scale)
    moved = op("ADD", moved, constant(random.uniform(-0.5, 0.5, (1, 1, 48))))
    normed = op("ADD", op("MUL", x, scale), moved)
    weights = constant(random.standard_normal((32, 48)) / 7)
    whole = {"keepNumDims": True}
    product = [normed, weights, constant(np.zeros(32))]
    graph.outputs = graph.op(
        "FULLY_CONNECTED", product, [T(shape=(1, 16, 32))], "FullyConnectedOptions", whole
    )
    return made.write()


@pytest.mark.parametrize("preset", ["fp32", "mixed", "fp16"])
def test_a_norm_of_keras_is_one_kernel(device, preset, tmp_path):
    model, bundle = tmp_path / "m.tflite", tmp_path / "m.adrenoc"
    model.write_bytes(keras_layer_norm())
    succeed("compile", model, "--device", "host", "--preset", preset, "-o", bundle)
    assert len(open_bundle(bundle).kernels()) == 2
    succeed("run", bundle, "--check", model)
