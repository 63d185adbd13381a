"""Norms: which axes share their statistics, factors and offsets; means that others make."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from adrenoc.bundle.bundle import open_bundle
from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families import depthwise
from adrenoc.kernels.families.depthwise import DepthwiseTile
from adrenoc.kernels.families.expansion import expansion_rule
from adrenoc.kernels.families.expansion.expansion_plan import ExpansionTile
from adrenoc.passes.fuse import fuse_depthwise, fuse_means
from tests.commands import succeed
from tests.host.run_op import Ops
from tests.tflite.build import ModelBuilder, T, constant

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
        factors = ops.weight(*shape[axis:], around=1.0), ops.weight(*shape[axis:])
        ops.output(ops("Relu", ops("LayerNormalization", x, *factors, axis=axis, epsilon=1e-3)))
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
        factors = ops.weight(channels), ops.weight(channels)
        ops.output(ops("GroupNormalization", x, *factors, num_groups=groups))
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

    def held(value, dtype: str = "float32") -> int:
        return graph.add(constant(value, dtype))

    def op(kind: str, *inputs: int, width: int = 48, options: str = "", **fields) -> int:
        shape = T(shape=(1, 16, width))
        return int(graph.op(kind, list(inputs), [shape], options, fields)[0])

    def mean(of: int) -> int:
        axis = held([2], "int32")
        return op("MEAN", of, axis, width=1, options="ReducerOptions", keepDims=True)

    center = mean(x)
    spread = mean(op("SQUARED_DIFFERENCE", x, center))
    scale = op("RSQRT", op("ADD", spread, held(1e-3), width=1), width=1)
    scale = op("MUL", scale, held(random.uniform(0.5, 1.5, (1, 1, 48))))
    moved = op("MUL", op("NEG", center, width=1), scale)
    moved = op("ADD", moved, held(random.uniform(-0.5, 0.5, (1, 1, 48))))
    normed = op("ADD", op("MUL", x, scale), moved)
    product = [normed, held(random.standard_normal((32, 48)) / 7), held(np.zeros(32))]
    whole = {"width": 32, "options": "FullyConnectedOptions", "keepNumDims": True}
    graph.outputs = [op("FULLY_CONNECTED", *product, **whole)]
    return made.write()


@pytest.mark.parametrize("preset", ["fp32", "mixed", "fp16"])
def test_a_norm_of_keras_is_one_kernel(device, preset, tmp_path):
    model, bundle = tmp_path / "m.tflite", tmp_path / "m.adrenoc"
    model.write_bytes(keras_layer_norm())
    succeed("compile", model, "--device", "host", "--preset", preset, "-o", bundle)
    assert len(open_bundle(bundle).kernels()) == 2
    succeed("run", bundle, "--check", model)


def _net(channels: int, size: tuple[int, int], *, wide: int = 0, stride: int = 1) -> Ops:
    """A depthwise convolution, of a 1x1 one to so many channels, with a gate made of its mean."""
    ops = Ops()
    x = ops.input(1, channels, *size, low=-0.5, high=1.5)
    if wide:
        x = ops("Relu", ops("Conv", x, ops.weight(wide, channels, 1, 1), ops.weight(wide)))
    made = wide or channels
    attrs = {"group": made, "pads": [1] * 4, "strides": [stride] * 2}
    y = ops("Conv", x, ops.weight(made, 1, 3, 3), ops.weight(made), **attrs)
    y = ops("Mul", y, ops("Sigmoid", y))
    s = ops("Relu", ops("Conv", ops("GlobalAveragePool", y), ops.weight(5, made, 1, 1)))
    e = ops("Sigmoid", ops("Conv", s, ops.weight(made, 5, 1, 1), ops.weight(made)))
    ops.output(ops("Mul", y, e))
    return ops


def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse_means, "reduction_clocks", _clocks)


def _clocks(graph: Graph, mean: Node, _: Any) -> float:
    return 1e12 if graph.producers[mean.inputs[0]].output == mean.inputs[0] else 0.0


def _only(tile: Any, parts: tuple[int, int]) -> Callable[..., list[Any]]:
    """Return the one schedule there is, whose work-groups are so many rows and columns."""
    return lambda work, *_: [tile] if work.mean_parts in (None, parts) else []


def _tile(rows: int, pixels: int, *group: int) -> DepthwiseTile:
    return DepthwiseTile(rows=rows, pixels=pixels, work_group=group)


@pytest.mark.parametrize("preset", ("fp32", "mixed", "fp16", "buffer"))
@pytest.mark.parametrize(
    "tile, parts, channels, size, stride",
    [
        (_tile(1, 1, 7, 5, 2), (1, 1), 20, (5, 7), 1),
        (_tile(2, 3, 4, 4, 3), (1, 1), 21, (8, 11), 1),
        (_tile(1, 2, 4, 2, 4), (5, 2), 10, (9, 13), 1),
        (_tile(3, 1, 8, 4, 1), (2, 2), 33, (31, 17), 2),
        (_tile(4, 4, 2, 3, 5), (4, 5), 40, (40, 37), 1),
        (_tile(1, 1, 1, 1, 8), (2, 3), 9, (2, 3), 1),
    ],
    ids=str,
)
def test_a_depthwise_convolution(tile, parts, channels, size, stride, preset, device, monkeypatch):
    _always(monkeypatch)
    monkeypatch.setattr(depthwise, "candidates", _only(tile, parts))
    ops = _net(channels, size, stride=stride)
    ops.check(device, preset)
    assert ops.kernels.count("depthwise_mean") == 1
    assert "depthwise_conv2d" not in ops.kernels


def _expansion(rows: int, columns: int, pixels: int, out_blocks: int, **more: Any) -> ExpansionTile:
    sizes = {"rows": rows, "columns": columns, "pixels": pixels, "out_blocks": out_blocks}
    return ExpansionTile(**sizes, **more)


_WIDE = {"bands": 3, "made_rows": 2, "made_columns": 3, "work_group": (64, 1, 1)}


@pytest.mark.parametrize("preset", ("fp32", "mixed", "fp16", "buffer"))
@pytest.mark.parametrize(
    "tile, parts, channels, wide, size, stride",
    [
        (
            _expansion(7, 7, 2, 2, bands=2, work_group=(32, 1, 1)),
            *((1, 1), 12, 30, (7, 7), 1),
        ),
        (_expansion(4, 6, 3, 1, **_WIDE), (3, 3), 16, 40, (10, 13), 1),
        (
            _expansion(3, 5, 1, 4, made_rows=3, work_group=(16, 1, 1)),
            *((4, 3), 9, 21, (19, 22), 2),
        ),
    ],
    ids=str,
)
def test_an_expansion(tile, parts, channels, wide, size, stride, preset, device, monkeypatch):
    _always(monkeypatch)
    monkeypatch.setattr(expansion_rule, "candidates", _only(tile, parts))
    monkeypatch.setattr(fuse_depthwise, "apart_clocks", lambda *_: 1e12)
    ops = _net(channels, size, wide=wide, stride=stride)
    ops.check(device, preset)
    assert ops.kernels.count("expand_depthwise_mean") == 1


def test_others_may_read_the_mean_and_the_image(ops, device, monkeypatch):
    _always(monkeypatch)
    y = ops("Conv", ops.input(1, 24, 12, 9), ops.weight(24, 1, 3, 3), group=24)
    mean = ops("GlobalAveragePool", y)
    ops.output(ops("Relu", y), ops("Neg", mean), mean)
    ops.check(device, "fp32")
    assert "depthwise_mean" in ops.kernels
