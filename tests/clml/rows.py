"""A small function for each row of the pattern table, with the graph that it has to become.

The documents are written by hand from TVM's code generator (names, order of inputs, attributes)
and, for what TVM 0.27 does not emit any more, from what its runtime and its v0.18 read.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from tests.clml.documents import Case, const, conv_attrs, inp, norm_attrs, one, op, pool_attrs
from tests.clml.regions import Make, Shape, constant, random

nn = relax.op.nn


def _vectors(count: int) -> list[Any]:
    """Scale, offset, mean and variance of a batch norm."""
    values = [random(count, seed=s) for s in (1, 2, 3)]
    return [constant(v) for v in (*values, np.abs(random(count, seed=4)) + 0.5)]


def _conv(
    outs: int = 5,
    *,
    kernel: tuple[int, int] = (3, 3),
    bias: bool = False,
    norm: bool = False,
    tail: Callable[[Any], Any] | None = None,
    pad: bool = False,
    **attrs,
) -> Make:
    def make(emit, x):
        dtype = str(x.ty.dtype)
        weight = random(outs, 6 // attrs.get("groups", 1), *kernel, seed=5, dtype=dtype)
        if pad:
            x = emit(nn.pad(x, [0, 0, 0, 0, 1, 2, 3, 0]))
        value = emit(nn.conv2d(x, constant(weight), **{"padding": (1, 1, 1, 1), **attrs}))
        if bias:
            offset = constant(random(1, outs, 1, 1, seed=6, dtype=dtype))
            value = emit(relax.op.add(value, offset))
        if norm:
            normed = nn.batch_norm(value, *_vectors(outs), axis=1, epsilon=1e-3, training=False)
            value = emit(relax.TupleGetItem(emit(normed), 0))
        return tail(value) if tail is not None else value

    return make


def _relu6(value):
    return relax.op.clip(value, 0, 6)


def _transposed(emit, x):
    dtype = str(x.ty.dtype)
    weight = constant(random(6, 4, 4, 4, seed=7, dtype=dtype))  # in, out, h, w
    value = emit(nn.conv2d_transpose(x, weight, strides=(2, 2), padding=(1, 1, 1, 1)))
    offset = constant(random(1, 4, 1, 1, seed=8, dtype=dtype))
    return nn.relu(emit(relax.op.add(value, offset)))


def _batch_norm(emit, x):
    value = emit(nn.batch_norm(x, *_vectors(6), axis=1, epsilon=3e-4, training=False))
    return relax.TupleGetItem(value, 0)


def _scale_shift(emit, x):
    value = emit(relax.op.multiply(x, constant(random(1, 6, 1, 1, seed=1))))
    return relax.op.add(value, constant(random(6, 1, 1, seed=2)))


def _dense(units: int, bias: bool) -> Make:
    def make(emit, x):
        columns = int(x.ty.shape[-1])
        value = emit(relax.op.matmul(x, constant(random(columns, units, seed=3))))
        return relax.op.add(value, constant(random(units, seed=4))) if bias else value

    return make


def _depth_to_space(block: int) -> Case:
    """Blocks of pixels from the channels of 4 x 5."""

    def make(emit, x):
        value = emit(relax.op.reshape(x, (1, block, block, 3, 4, 5)))
        value = emit(relax.op.permute_dims(value, [0, 3, 4, 1, 5, 2]))
        return relax.op.reshape(value, out)

    name, out = "depth_to_space", (1, 3, 4 * block, 5 * block)
    shapes = ((1, 3 * block**2, 4, 5),)
    return one(f"{name}_{block}", name, make, shapes, f"nn.{name}", out, block_size=block)


def _resize(mode: str, rows: int, columns: int) -> Case:
    """From 4 x 5 pixels."""
    how = {"layout": "NCHW", "method": "linear", "coordinate_transformation_mode": mode}
    make = lambda _, x: relax.op.image.resize2d(x, (rows, columns), **how)  # noqa: E731
    name, out = f"upsampling_{mode}_{rows}x{columns}", (1, 3, rows, columns)
    corners = int(mode == "align_corners")
    return one(
        name, "upsampling", make, ((1, 3, 4, 5),), "nn.upsampling", out, align_corners=corners
    )


def _conv_case(
    name: str, composite: str, make: Make, *constants: Shape, by_tvm: bool = True, **attrs
) -> Case:
    """A convolution of 6 channels on 9 x 7."""
    out = attrs.pop("out", (1, 5, 9, 7))
    row = "depthwise_conv2d" if "depthwise" in composite else "conv2d"
    facts = conv_attrs(**attrs)
    kernel = f"openclml.{composite}"
    shapes = ((1, 6, 9, 7),)
    return one(name, row, make, shapes, kernel, out, constants=constants, by_tvm=by_tvm, **facts)


def _binary(name: str) -> Case:
    row = "divide" if name == "divide" else "binary"
    make = lambda _, x, y: getattr(relax.op, name)(x, y)  # noqa: E731
    return one(name, row, make, ((1, 5, 4, 3),) * 2, f"openclml.relax.{name}", by_tvm=True)


def _global(name: str, make: Make, out: Shape, *, kind: str = "avg", by_tvm: bool = False) -> Case:
    kernel, facts = f"nn.global_{kind}_pool2d", {"axis": [2, 3], "keepdims": int(len(out) == 4)}
    row = kernel.removeprefix("nn.")
    shapes = ((1, 5, 9, 4),)
    return one(name, row, make, shapes, f"openclml.{kernel}", out, by_tvm=by_tvm, **facts)


def _softmax(shape: Shape, axis: int) -> Case:
    name = f"softmax_{len(shape)}_{axis}"
    make = lambda _, x: nn.softmax(x, axis)  # noqa: E731
    kernel, along = "openclml.relax.nn.softmax", axis % len(shape)
    return one(name, "softmax", make, (shape,), kernel, by_tvm=True, axis=along)


def _pad(name: str, mode: str, widths: list[int], out: Shape) -> Case:
    make = lambda _, x: nn.pad(x, [0, 0, 0, 0, *widths], pad_mode=mode)  # noqa: E731
    top, bottom, left, right = widths
    return one(
        name,
        "pad",
        make,
        ((1, 5, 4, 3),),
        "nn.pad",
        out,
        pad_mode=mode,
        pad_width=[top, bottom, left, right],
    )


_W, _B, _N = (5, 6, 3, 3), (1, 5, 1, 1), (5,)
_WORDS = ["1", "0.001000", "1", "1"]
_X = ((1, 5, 4, 3),)
_RELU, _RELU6 = {"activation_type": "relu"}, {"activation_type": "relu6"}
_UNEVEN = {"strides": (2, 1), "dilation": (1, 2), "padding": (0, 2, 1, 2)}

CASES = (
    _conv_case("conv", "nn.conv2d", _conv(), _W),
    _conv_case("conv_bias", "bias.nn.conv2d", _conv(bias=True), _W, _B),
    _conv_case("conv_relu", "relu.nn.conv2d", _conv(tail=nn.relu), _W, **_RELU),
    _conv_case(
        "conv_bias_relu",
        "relu.bias.nn.conv2d",
        _conv(bias=True, tail=nn.relu, **_UNEVEN),
        _W,
        _B,
        **{key: list(value) for key, value in _UNEVEN.items()},
        **_RELU,
        out=(1, 5, 4, 7),
    ),
    _conv_case(
        "conv_bias_relu6",
        "relu6.bias.nn.conv2d",
        _conv(bias=True, tail=_relu6),
        _W,
        _B,
        **_RELU6,
        by_tvm=False,  # its pattern for clip has one argument, the operator three
    ),
    _conv_case(
        "conv_pad",
        "pad.nn.conv2d",
        _conv(pad=True, padding=(0, 0, 0, 0)),
        _W,
        padding=[1, 3, 2, 0],
        out=(1, 5, 10, 8),
    ),
    _conv_case(
        "conv_norm",
        "tuple.bn.nn.conv2d",
        _conv(norm=True),
        _W,
        *[_N] * 4,
        batchnorm=_WORDS,
        by_tvm=False,  # a pass before folds the norm
    ),
    _conv_case(
        "conv_bias_norm_relu",
        "relu.tuple.bn.bias.nn.conv2d",
        _conv(bias=True, norm=True, tail=nn.relu),
        _W,
        _B,
        *[_N] * 4,
        batchnorm=_WORDS,
        **_RELU,
        by_tvm=False,
    ),
    _conv_case(
        "depthwise",
        "relu.bias.nn.depthwise_conv2d",
        _conv(6, groups=6, bias=True, tail=nn.relu),
        (1, 6, 3, 3),
        (1, 6, 1, 1),
        groups=6,
        kernel_layout="IOHW",
        **_RELU,
        out=(1, 6, 9, 7),
        by_tvm=False,  # it is an nn.conv2d there, which its own runtime refuses
    ),
    _conv_case(
        "conv_5x5_steps",
        "nn.conv2d",
        _conv(kernel=(5, 5), strides=(2, 2)),
        (5, 6, 5, 5),
        strides=[2, 2],
        out=(1, 5, 4, 3),
    ),
    _conv_case(
        "conv_1x3_relu",
        "relu.nn.conv2d",
        _conv(kernel=(1, 3), padding=(0, 0, 0, 0), tail=nn.relu),
        (5, 6, 1, 3),
        padding=[0, 0, 0, 0],
        **_RELU,
        out=(1, 5, 9, 5),
    ),
    _conv_case(
        "depthwise_5x5_steps",
        "nn.depthwise_conv2d",
        _conv(6, kernel=(5, 5), groups=6, strides=(2, 2), padding=(2, 2, 2, 2)),
        (1, 6, 5, 5),
        groups=6,
        strides=[2, 2],
        padding=[2, 2, 2, 2],
        kernel_layout="IOHW",
        out=(1, 6, 5, 4),
        by_tvm=False,  # as above
    ),
    one(
        "transposed_steps_of_one",
        "conv2d_transpose",
        lambda _, x: nn.conv2d_transpose(x, constant(random(6, 4, 3, 3)), padding=(1, 1, 1, 1)),
        ((1, 6, 5, 7),),
        "openclml.nn.conv2d_transpose",
        (1, 4, 5, 7),
        constants=((4, 6, 3, 3),),
        **conv_attrs(output_padding=[0, 0]),
    ),
    one(
        "transposed",
        "conv2d_transpose",
        _transposed,
        ((1, 6, 5, 7),),
        "openclml.relu.bias.nn.conv2d_transpose",
        (1, 4, 10, 14),
        constants=((4, 6, 4, 4), (1, 4, 1, 1)),
        by_tvm=True,
        **conv_attrs(strides=[2, 2], output_padding=[0, 0], **_RELU),
    ),
    one(
        "batch_norm",
        "batch_norm",
        _batch_norm,
        ((1, 6, 5, 4),),
        "openclml.nn.batch_norm",
        constants=((6,),) * 4,
        by_tvm=True,
        **norm_attrs(3e-4),
    ),
    one(
        "scale_shift",
        "scale_shift",
        _scale_shift,
        ((1, 6, 5, 4),),
        "openclml.nn.batch_norm",
        constants=((6,),) * 4,
        **norm_attrs(0.0),
    ),
    one(
        "relu", "relu", lambda _, x: nn.relu(x), _X, "openclml.relax.nn.relu", by_tvm=True, **_RELU
    ),
    one("relu6", "relu6", lambda _, x: _relu6(x), _X, "openclml.nn.relu6"),
    one(
        "clip",
        "clip",
        lambda _, x: relax.op.clip(x, -0.5, 0.25),
        _X,
        "clip",
        a_max=0.25,
        a_min=-0.5,
    ),
    *map(_binary, ("add", "subtract", "multiply", "divide", "maximum", "minimum")),
    one(
        "max_pool",
        "max_pool2d",
        lambda _, x: nn.max_pool2d(x, (3, 2), (2, 1), (1, 0, 1, 1)),
        ((1, 5, 9, 8),),
        "openclml.nn.max_pool2d",
        (1, 5, 5, 8),
        by_tvm=True,
        **pool_attrs(pool_size=[3, 2], strides=[2, 1], padding=[1, 0, 1, 1]),
    ),
    one(
        "avg_pool",
        "avg_pool2d",
        lambda _, x: nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1)),
        ((1, 5, 9, 7),),
        "openclml.nn.avg_pool2d",
        (1, 5, 5, 4),
        by_tvm=True,
        **pool_attrs(padding=[1, 1, 1, 1]),
    ),
    _global(
        "global_avg_pool",
        lambda _, x: relax.op.mean(x, [2, 3], keepdims=True),
        (1, 5, 1, 1),
        by_tvm=True,
    ),
    _global(
        "global_avg_pool_squeezed",
        lambda _, x: relax.op.mean(x, [2, 3], keepdims=False),
        (1, 5),
        by_tvm=True,
    ),
    _global("global_avg_pool_from_behind", lambda _, x: relax.op.mean(x, [-1, -2]), (1, 5)),
    _global(
        "global_max_pool",
        lambda _, x: relax.op.max(x, [2, 3], keepdims=True),
        (1, 5, 1, 1),
        kind="max",
    ),
    *(_softmax(*how) for how in (((1, 9), 1), ((1, 7, 9), -1), ((1, 5, 4, 3), 1))),
    _softmax((1, 5, 4, 3), -1),
    one(
        "reshape",
        "reshape",
        lambda _, x: relax.op.reshape(x, (1, 20, 3)),
        _X,
        "openclml.reshape",
        (1, 20, 3),
        by_tvm=True,
    ),
    Case(
        name="concat",
        row="concat",
        make=lambda _, x, y: relax.op.concat([x, y, x], 1),
        inputs=(*_X, (1, 2, 4, 3)),
        nodes=(inp(*_X[0]), inp(1, 2, 4, 3), op("concatenate", [0, 1, 0], (1, 12, 4, 3), axis=1)),
    ),
    _pad("pad", "constant", [1, 2, 0, 3], (1, 5, 7, 6)),
    _pad("pad_reflect", "reflect", [1, 2, 2, 1], (1, 5, 7, 6)),
    one(
        "dense",
        "dense",
        _dense(7, bias=False),
        ((3, 5),),
        "nn.dense",
        (3, 7),
        constants=((7, 5),),
        units=7,
    ),
    one(
        "dense_bias",
        "dense",
        _dense(7, bias=True),
        ((1, 5),),
        "nn.dense",
        (1, 7),
        constants=((7, 5), (1, 7)),
        units=7,
    ),
    Case(
        name="dense_rows_bias",
        row="dense",
        make=_dense(7, bias=True),
        inputs=((3, 5),),
        nodes=(
            inp(3, 5),
            const(7, 5),
            op("nn.dense", [0, 1], (3, 7), units=7),
            const(3, 7),
            op("openclml.relax.add", [2, 3], (3, 7)),
        ),
    ),
    one(
        "batch_matmul",
        "batch_matmul",
        lambda _, x, y: relax.op.matmul(x, y),
        ((1, 4, 5), (1, 5, 6)),
        "nn.batch_matmul",
        (1, 4, 6),
        transpose_b=0,
    ),
    Case(
        name="linear",
        row="batch_matmul",
        make=_dense(6, bias=True),
        inputs=((1, 4, 5),),
        nodes=(
            inp(1, 4, 5),
            const(1, 6, 5),
            op("nn.batch_matmul", [0, 1], (1, 4, 6), transpose_b=1),
            const(1, 4, 6),
            op("openclml.relax.add", [2, 3], (1, 4, 6)),
        ),
    ),
    one(
        "batch_matmul_turned",
        "batch_matmul",
        lambda emit, x, y: relax.op.matmul(x, emit(relax.op.permute_dims(y, [0, 2, 1]))),
        ((1, 4, 5), (1, 6, 5)),
        "nn.batch_matmul",
        (1, 4, 6),
        transpose_b=1,
    ),
    *map(_depth_to_space, (2, 4)),
    *(
        _resize(mode, *plane)
        for mode in ("align_corners", "asymmetric")
        for plane in ((8, 15), (8, 5))
    ),
)
