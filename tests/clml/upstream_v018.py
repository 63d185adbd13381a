"""The operator cases of TVM 0.18 (and the clips of 0.19), each as a function and its graph.

They are those of `tests/python/contrib/test_clml/test_ops.py` there, restated: every parameter set
is a `Trial` that names its test, so `COUNTS` shows whether all are here.  The graphs are in the
form of TVM 0.27 (typed attributes), with the operators' names and attributes of 0.18 where 0.27
does not emit the operator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from tests.clml.documents import Case, conv_attrs, inp, norm_attrs, one, op, pool_attrs
from tests.clml.regions import Shape, by_emulator, constant, module_of, random
from tests.stock_tvm import run_on_cpu

nn = relax.op.nn

COUNTS = {
    "test_conv2d": 14,
    "test_conv2d_transpose": 3,
    "test_batchnorm": 2,
    "test_concat": 3,
    "test_pool": 10,
    "test_dense": 8,
    "test_binary_ops": 6,
    "test_unary_ops": 2,
    "test_depth_to_space": 12,
    "test_resize_bilinear": 3,
    "test_batch_matmul": 4,
    "test_softmax": 9,
    "test_upsampling": 3,
    "test_reshape": 4,
    "test_pool_global": 11,
    "test_batch_flatten": 4,
    "test_clip": 2,
}
"""Test of TVM's -> how many parameter sets it has, each in float32 and float16."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One parameter set of one test.

    `half` is the tolerance, absolute and relative, that the test allows in float16; in float32 it
    is 1e-5, but where `single` says otherwise.  `small` are inputs for a quick look at the numbers
    where those of the case take seconds.  `offloaded` is False where the test wants it refused.
    """

    test: str
    case: Case
    half: float
    single: float = 1e-5
    small: tuple[Shape, ...] = ()
    offloaded: bool = True

    @property
    def id(self) -> str:
        """Test and parameters."""
        return f"{self.test}[{self.case.name}]"


def compare(trial: Trial, device: Any, shapes: Sequence[Shape]) -> dict[str, float]:
    """Assert of the numbers what TVM's test asserts; returns the largest error by dtype."""
    module = module_of(trial.case.make, *shapes)
    inputs = [random(*shape, seed=i) for i, shape in enumerate(shapes)]
    if trial.case.row == "divide":
        inputs[1] = np.sign(inputs[1]) * (np.abs(inputs[1]) + 0.1)
    (expected,) = run_on_cpu(module, inputs)
    errors = {}
    for dtype, tolerance in (("float32", trial.single), ("float16", trial.half)):
        (value,) = by_emulator(module, device, inputs, dtype=dtype)
        assert value.shape == expected.shape
        assert np.allclose(value, expected, rtol=tolerance, atol=tolerance), dtype
        errors[dtype] = float(np.abs(value - expected).max())
    return errors


def _text(*shapes: Shape) -> str:
    return " ".join("x".join(map(str, shape)) for shape in shapes)


def _conv(
    kernel: tuple[int, int],
    padding: int,
    stride: int,
    outs: int,
    data: tuple[int, int, int],
    how: str = "",
    *,
    depthwise: bool = False,
) -> Trial:
    """`how` names what goes with the convolution: pad, bias, relu."""
    (channels, *plane), groups = data, data[0] if depthwise else 1

    def make(emit: Any, x: Any) -> Any:
        weight = constant(random(outs, channels // groups, *kernel))
        if "pad" in how:
            x = emit(nn.pad(x, [0, 0, 0, 0, *[padding] * 4]))
        inner = 0 if "pad" in how else padding
        conv = nn.conv2d(x, weight, (stride,) * 2, (inner,) * 4, groups=groups)
        if "bias" in how:
            conv = relax.op.add(emit(conv), constant(random(1, outs, 1, 1, seed=1)))
        return nn.relu(emit(conv)) if "relu" in how else conv

    tags = "".join(f"{tag}." for tag in ("relu", "bias", "pad") if tag in how)
    attrs = conv_attrs(padding=[padding] * 4, strides=[stride] * 2, groups=groups)
    if depthwise:
        attrs["kernel_layout"] = "IOHW"
    if "relu" in how:
        attrs["activation_type"] = "relu"
    leaves = ((1, outs, *kernel) if depthwise else (outs, channels, *kernel),)
    extents = ((d + 2 * padding - k) // stride + 1 for d, k in zip(plane, kernel, strict=True))
    case = one(
        f"{_text(kernel, data)} to {outs}, pad {padding}, stride {stride} {how}".strip(),
        "depthwise_conv2d" if depthwise else "conv2d",
        make,
        ((1, *data),),
        f"openclml.{tags}nn.{'depthwise_' if depthwise else ''}conv2d",
        (1, outs, *extents),
        constants=(*leaves, *[(1, outs, 1, 1)] * ("bias" in how)),
        **attrs,
    )
    return Trial(test="test_conv2d", case=case, half=1e-1)


def _transposed(data: Shape, kernel: Shape, stride: int, *small: Shape) -> Trial:
    def make(_: Any, x: Any) -> Any:
        return nn.conv2d_transpose(x, constant(random(*kernel)), (stride,) * 2, (1,) * 4)

    ins, outs, *window = kernel
    plane = ((d - 1) * stride - 2 + k for d, k in zip(data[2:], window, strict=True))
    case = one(
        f"{_text(data, kernel)}, stride {stride}",
        "conv2d_transpose",
        make,
        (data,),
        "openclml.nn.conv2d_transpose",
        (1, outs, *plane),
        constants=((outs, ins, *window),),
        **conv_attrs(strides=[stride] * 2, output_padding=[0, 0]),
    )
    return Trial(test="test_conv2d_transpose", case=case, half=1e-1, small=small)


def _batch_norm(shape: Shape) -> Trial:
    def make(emit: Any, x: Any) -> Any:
        vectors = [random(shape[1], seed=s) for s in (1, 2, 3)]
        vectors.append(np.abs(random(shape[1], seed=4)) + 0.3)
        norm = nn.batch_norm(x, *map(constant, vectors), axis=1, epsilon=3e-4, training=False)
        return relax.TupleGetItem(emit(norm), 0)

    vectors = ((shape[1],),) * 4
    name = "openclml.nn.batch_norm"
    case = one(
        _text(shape), "batch_norm", make, (shape,), name, constants=vectors, **norm_attrs(3e-4)
    )
    return Trial(test="test_batchnorm", case=case, half=1e-3)


def _concat(first: Shape, second: Shape) -> Trial:
    make = lambda _, x, y: relax.op.concat([x, y], 1)  # noqa: E731
    out = (first[0], first[1] + second[1], *first[2:])
    shapes = (first, second)
    case = one(_text(*shapes), "concat", make, shapes, "concatenate", out, axis=1)
    return Trial(test="test_concat", case=case, half=1e-2)


def _pool(kind: str, channels: int, size: int) -> Trial:
    stride, after = (2, 0) if kind == "max" else (1, 1)
    row, pads = f"{kind}_pool2d", (0, 0, after, after)
    make = lambda _, x: getattr(nn, row)(x, (3, 3), (stride,) * 2, pads)  # noqa: E731
    shape, extent = (1, channels, size, size), (size + after - 3) // stride + 1
    out = (1, channels, extent, extent)
    attrs = pool_attrs(strides=[stride] * 2, padding=list(pads))
    case = one(f"{kind} {_text(shape)}", row, make, (shape,), f"openclml.nn.{row}", out, **attrs)
    return Trial(test="test_pool", case=case, half=1e-2)


def _dense(rows: int, columns: int, units: int, *, bias: bool = False) -> Trial:
    def make(emit: Any, x: Any) -> Any:
        # TVM's weights are [units, columns].
        product = relax.op.matmul(x, constant(random(units, columns).T.copy()))
        return relax.op.add(emit(product), constant(random(units, seed=1))) if bias else product

    name = f"{_text((rows, columns), (units, columns))}{' bias' if bias else ''}"
    constants = ((units, columns), *[(1, units)] * bias)
    case = one(
        name,
        "dense",
        make,
        ((rows, columns),),
        "nn.dense",
        (rows, units),
        constants=constants,
        units=units,
    )
    return Trial(test="test_dense", case=case, half=1e-1)


def _binary(name: str, count: int) -> Trial:
    make = lambda _, x, y: getattr(relax.op, name)(x, y)  # noqa: E731
    row = "divide" if name == "divide" else "binary"
    shapes = ((1, count),) * 2
    case = one(f"{name} {count}", row, make, shapes, f"openclml.relax.{name}")
    return Trial(test="test_binary_ops", case=case, half=1e-2)


def _relu(count: int) -> Trial:
    facts = {"activation_type": "relu"}
    make = lambda _, x: nn.relu(x)  # noqa: E731
    case = one(f"relu {count}", "relu", make, ((1, count),), "openclml.relax.nn.relu", **facts)
    return Trial(test="test_unary_ops", case=case, half=1e-2)


def _depth_to_space(channels: int, block: int, order: str, again: str = "") -> Trial:
    shape, inner = (1, channels, 8, 8), channels // block**2
    out = (1, inner, 8 * block, 8 * block)
    parts, axes = (1, block, block, inner, 8, 8), [0, 3, 4, 1, 5, 2]
    if order == "CRD":
        parts, axes = (1, inner, block, block, 8, 8), [0, 1, 4, 2, 5, 3]

    def make(emit: Any, x: Any) -> Any:
        value = emit(relax.op.permute_dims(emit(relax.op.reshape(x, parts)), axes))
        return relax.op.reshape(value, out)

    name = f"{_text(shape)} by {block} {order}{again}"
    kernel = "nn.depth_to_space"
    case = one(name, "depth_to_space", make, (shape,), kernel, out, block_size=block)
    return Trial(test="test_depth_to_space", case=case, half=1e-2, offloaded=order == "DCR")


def _resize(test: str, shape: Shape, scales: tuple[int, int], *, align: bool = False) -> Trial:
    mode = "align_corners" if align else "asymmetric"
    plane = tuple(d * s for d, s in zip(shape[2:], scales, strict=True))
    make = lambda _, x: relax.op.image.resize2d(  # noqa: E731
        x, plane, layout="NCHW", method="linear", coordinate_transformation_mode=mode
    )
    name, out = f"{_text(shape, scales)} {mode}", (*shape[:2], *plane)
    facts = {"align_corners": int(align)}
    case = one(name, "upsampling", make, (shape,), "nn.upsampling", out, **facts)
    return Trial(test=test, case=case, half=1e-2)


def _batch_matmul(first: Shape, second: Shape) -> Trial:
    def make(emit: Any, x: Any, y: Any) -> Any:
        return relax.op.matmul(x, emit(relax.op.permute_dims(y, [0, 2, 1])))

    shapes, out = (first, second), (1, first[1], second[1])
    kernel, facts = "nn.batch_matmul", {"transpose_b": 1}
    case = one(_text(*shapes), "batch_matmul", make, shapes, kernel, out, **facts)
    return Trial(test="test_batch_matmul", case=case, half=1e-1)


def _softmax(shape: Shape, axis: int) -> Trial:
    # The test allows 1e-1 on values near 0.03 along the last axis, where TVM's runtime
    # normalises another one; ours has to be right there too.
    make = lambda _, x: nn.softmax(x, axis)  # noqa: E731
    name, kernel = f"{_text(shape)} along {axis}", "openclml.relax.nn.softmax"
    case = one(name, "softmax", make, (shape,), kernel, axis=axis % len(shape))
    return Trial(test="test_softmax", case=case, half=1e-3, single=1e-3)


def _reshape(test: str, shape: Shape, wanted: Shape) -> Trial:
    """After a ReLU; a -1 stands for what remains."""
    known = -math.prod(wanted) if -1 in wanted else 1
    out = tuple(math.prod(shape) // known if d == -1 else d for d in wanted)
    nodes = (
        inp(*shape),
        op("openclml.relax.nn.relu", [0], shape, activation_type="relu"),
        op("openclml.reshape", [1], out),
    )
    make = lambda emit, x: relax.op.reshape(emit(nn.relu(x)), wanted)  # noqa: E731
    name = f"{_text(shape)} to {_text(wanted)}"
    case = Case(name=name, row="reshape", make=make, inputs=(shape,), nodes=nodes)
    return Trial(test=test, case=case, half=1e-3)


def _global(kind: str, channels: int, size: int) -> Trial:
    reduce = relax.op.mean if kind == "avg" else relax.op.max
    make = lambda _, x: reduce(x, [2, 3], keepdims=True)  # noqa: E731
    shape, row = (1, channels, size, size), f"global_{kind}_pool2d"
    facts = {"axis": [2, 3], "keepdims": 1}
    name, out = f"{kind} {_text(shape)}", (1, channels, 1, 1)
    case = one(name, row, make, (shape,), f"openclml.nn.{row}", out, **facts)
    return Trial(test="test_pool_global", case=case, half=1e-3)


def _clip(shape: Shape, low: int, high: int) -> Trial:
    make = lambda _, x: relax.op.clip(x, low, high)  # noqa: E731
    facts = {"a_max": float(high), "a_min": float(low)}
    case = one(f"{_text(shape)} {low} {high}", "clip", make, (shape,), "clip", **facts)
    return Trial(test="test_clip", case=case, half=1e-3)


TRIALS = (
    _conv((3, 3), 1, 1, 4, (14, 10, 10), "bias"),
    _conv((2, 2), 1, 1, 4, (16, 10, 10)),
    _conv((5, 5), 1, 2, 4, (14, 10, 10)),
    _conv((5, 5), 1, 2, 4, (16, 10, 10)),
    _conv((5, 5), 1, 1, 4, (6, 256, 256), "pad bias relu"),
    _conv((3, 3), 0, 1, 4, (4, 512, 512), "bias"),
    _conv((3, 3), 1, 1, 8, (6, 512, 512), "bias"),
    _conv((1, 3), 0, 1, 16, (16, 20, 20), "relu"),
    _conv((3, 1), 0, 1, 64, (64, 20, 20), "relu"),
    _conv((3, 3), 1, 1, 11, (11, 20, 20), "relu", depthwise=True),
    _conv((5, 5), 2, 1, 32, (32, 20, 20), "bias", depthwise=True),
    _conv((3, 3), 2, 2, 128, (128, 8, 8), depthwise=True),
    _conv((5, 5), 0, 1, 64, (64, 32, 32), depthwise=True),
    _conv((3, 3), 1, 2, 16, (16, 256, 256), "bias relu", depthwise=True),
    _transposed((1, 64, 200, 200), (64, 64, 4, 4), 2, (1, 64, 9, 7)),
    _transposed((1, 64, 400, 400), (64, 16, 4, 4), 2, (1, 64, 11, 13)),
    _transposed((1, 16, 32, 32), (16, 16, 3, 3), 1),
    *map(_batch_norm, ((1, 64, 8, 8), (1, 16, 64, 64))),
    _concat((1, 64, 64, 40), (1, 64, 64, 40)),
    _concat((1, 1280, 32, 32), (1, 640, 32, 32)),
    _concat((1, 64), (1, 32)),
    *(_pool("max", c, s) for c, s in ((64, 147), (192, 71), (288, 35), (768, 17), (2048, 17))),
    *(_pool("avg", c, s) for c, s in ((192, 35), (256, 35), (288, 35), (768, 17), (1280, 8))),
    *(_dense(*how) for how in ((5, 16, 32), (320, 64, 320), (256,) * 3, (512,) * 3)),
    _dense(1, 256, 100),
    *(_dense(*how, bias=True) for how in ((1, 16, 32), (1, 512, 512), (1, 5, 4))),
    *map(_binary, ("add", "subtract", "multiply", "divide"), (16, 18, 256, 10)),
    *map(_binary, ("minimum", "maximum"), (16, 512)),
    *map(_relu, (16, 256)),
    *(
        _depth_to_space(channels, block, order, again)
        for channels, again in ((64, ""), (64, " again"), (512, ""))
        for block in (4, 8)
        for order in ("DCR", "CRD")
    ),
    _resize("test_resize_bilinear", (1, 16, 8, 8), (2, 2)),
    _resize("test_resize_bilinear", (1, 16, 7, 7), (2, 2), align=True),
    _resize("test_resize_bilinear", (1, 64, 8, 8), (2, 2), align=True),
    _batch_matmul((1, 512, 32), (1, 512, 32)),
    _batch_matmul((1, 128, 32), (1, 128, 32)),
    _batch_matmul((1, 128, 128), (1, 32, 128)),
    _batch_matmul((1, 64, 40), (1, 64, 40)),
    *(_softmax((1, count), axis) for count, axis in ((5, 1), (16, 1), (1000, -1))),
    *(_softmax(s, 1) for s in ((1, 100, 64, 100), (1, 64, 64, 64), (1, 5, 3, 4))),
    *(_softmax(s, 3) for s in ((1, 64, 100, 100), (1, 100, 100, 100))),
    _softmax((1, 64, 5, 32), -1),
    _resize("test_upsampling", (1, 1, 2, 2), (2, 1)),
    _resize("test_upsampling", (1, 16, 2, 2), (4, 4)),
    _resize("test_upsampling", (1, 8, 4, 4), (3, 2)),
    _reshape("test_reshape", (1, 40, 64, 64), (1, 40, 4096)),
    _reshape("test_reshape", (1, 77, 768), (1, 1, -1, 768)),
    _reshape("test_reshape", (1, 80, 32, 32), (1, 80, 1024)),
    _reshape("test_reshape", (1, 2, 3, 4), (1, 2, -1)),  # there (1, 0, -1): a 0 keeps the extent
    _global("avg", 3, 32),
    *(_global("max", c, s) for c, s in ((64, 147), (192, 71), (288, 35), (768, 17), (2048, 17))),
    *(_global("avg", c, s) for c, s in ((192, 35), (256, 35), (288, 35), (768, 17), (1280, 8))),
    _reshape("test_batch_flatten", (1, 3, 2), (1, 6)),
    _reshape("test_batch_flatten", (1, 4, 3, 2), (1, 24)),
    _reshape("test_batch_flatten", (1, 64, 8, 8), (1, 4096)),
    _reshape("test_batch_flatten", (1, 128, 4, 4), (1, 2048)),
    _clip((1, 32, 256, 256), -1, 1),
    _clip((1, 8, 64, 64), 0, 1),
)
