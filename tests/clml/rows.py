"""A small function for each row of the pattern table, with the graph that it has to become.

The documents are written by hand from TVM's code generator (names, order of inputs, attributes)
and, for what TVM 0.27 does not emit any more, from what its runtime and its v0.18 read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax

from tests.clml.regions import Make, Shape, constant, module_of, random

nn = relax.op.nn


@dataclass(frozen=True, kw_only=True)
class Case:
    """One function and the nodes that it becomes.

    A node of `kernels` is (name, inputs by index, shape, attributes); `constants` are the shapes
    of those constants, and `layout` says where inputs and constants stand among the nodes.
    """

    name: str
    row: str
    make: Make
    inputs: tuple[Shape, ...]
    nodes: tuple[Any, ...] = field(repr=False)

    def module(self) -> Any:
        """The function as a module."""
        return module_of(self.make, *self.inputs)


def inp(*shape: int) -> tuple[str, Shape]:
    """An input."""
    return ("input", shape)


def const(*shape: int) -> tuple[str, Shape]:
    """A constant."""
    return ("const", shape)


def op(name: str, inputs: list[int], shape: Shape, **attrs: Any) -> tuple[Any, ...]:
    """An operator."""
    return ("kernel", name, inputs, shape, attrs)


def expected_nodes(case: Case, dtype: str) -> list[dict[str, Any]]:
    """The nodes of a case as JSON, names of inputs and constants left out."""
    made = []
    for entry in case.nodes:
        if entry[0] != "kernel":
            attrs: dict[str, Any] = {"shape": [list(entry[1])], "dtype": [dtype]}
            made.append({"op": entry[0], "name": "", "attrs": attrs})
            continue
        _, name, inputs, shape, extra = entry
        made.append(
            {
                "op": "kernel",
                "name": name,
                "inputs": [[index, 0, 0] for index in inputs],
                "attrs": {
                    "shape": [list(shape)],
                    "dtype": [dtype],
                    "num_inputs": len(inputs),
                    "num_outputs": 1,
                    **extra,
                },
            }
        )
    return made


def conv_attrs(**changes: Any) -> dict[str, Any]:
    """The attributes of a convolution."""
    return {
        "strides": [1, 1],
        "padding": [1, 1, 1, 1],
        "dilation": [1, 1],
        "groups": 1,
        "data_layout": "NCHW",
        "kernel_layout": "OIHW",
        "out_layout": "NCHW",
        "out_dtype": "",
        **changes,
    }


def pool_attrs(**changes: Any) -> dict[str, Any]:
    """The attributes of a pool."""
    return {
        "pool_size": [3, 3],
        "strides": [2, 2],
        "dilation": [1, 1],
        "padding": [0, 0, 0, 0],
        "ceil_mode": 0,
        "count_include_pad": 0,
        "layout": "NCHW",
        "out_layout": "NCHW",
        **changes,
    }


_NORM = {"axis": 1, "momentum": 0.1, "center": 1, "scale": 1}
_VECTORS = [random(6, seed=s) for s in (1, 2, 3)] + [np.abs(random(6, seed=4)) + 0.5]


def _conv(
    outs: int = 5,
    ins: int = 6,
    *,
    bias: bool = False,
    norm: bool = False,
    tail: Callable[[Any], Any] | None = None,
    pad: bool = False,
    kernel: tuple[int, int] = (3, 3),
    **attrs: Any,
) -> Make:
    def make(emit: Any, x: Any) -> Any:
        groups = attrs.get("groups", 1)
        weight = constant(random(outs, ins // groups, *kernel, seed=5))
        if pad:
            x = emit(nn.pad(x, [0, 0, 0, 0, 1, 2, 3, 0]))
        value = emit(nn.conv2d(x, weight, **{"padding": (1, 1, 1, 1), **attrs}))
        if bias:
            value = emit(relax.op.add(value, constant(random(1, outs, 1, 1, seed=6))))
        if norm:
            vectors = [constant(v[:outs]) for v in _VECTORS]
            value = emit(nn.batch_norm(value, *vectors, axis=1, epsilon=1e-3, training=False))
            value = emit(relax.TupleGetItem(value, 0))
        return tail(value) if tail is not None else value

    return make


def _relu6(value: Any) -> Any:
    return relax.op.clip(value, 0, 6)


def _transposed(emit: Any, x: Any) -> Any:
    weight = constant(random(6, 4, 4, 4, seed=7))  # in, out, h, w
    value = emit(nn.conv2d_transpose(x, weight, strides=(2, 2), padding=(1, 1, 1, 1)))
    return nn.relu(emit(relax.op.add(value, constant(random(1, 4, 1, 1, seed=8)))))


def _batch_norm(emit: Any, x: Any) -> Any:
    vectors = [constant(v) for v in _VECTORS]
    value = emit(nn.batch_norm(x, *vectors, axis=1, epsilon=3e-4, training=False))
    return relax.TupleGetItem(value, 0)


def _scale_shift(emit: Any, x: Any) -> Any:
    value = emit(relax.op.multiply(x, constant(random(1, 6, 1, 1, seed=1))))
    return relax.op.add(value, constant(random(6, 1, 1, seed=2)))


def _dense(units: int, bias: bool) -> Make:
    def make(emit: Any, x: Any) -> Any:
        columns = int(x.ty.shape[-1])
        value = emit(relax.op.matmul(x, constant(random(columns, units, seed=3))))
        return relax.op.add(value, constant(random(units, seed=4))) if bias else value

    return make


def _depth_to_space(emit: Any, x: Any) -> Any:
    value = emit(relax.op.reshape(x, (1, 2, 2, 3, 4, 5)))
    value = emit(relax.op.permute_dims(value, [0, 3, 4, 1, 5, 2]))
    return relax.op.reshape(value, (1, 3, 8, 10))


def _resize(mode: str) -> Make:
    def make(_: Any, x: Any) -> Any:
        return relax.op.image.resize2d(
            x,
            (8, 15),
            layout="NCHW",
            method="linear",
            coordinate_transformation_mode=mode,
        )

    return make


def _conv_case(name: str, composite: str, make: Make, *shapes: Shape, **attrs: Any) -> Case:
    """A convolution of 6 channels on 9 x 7; `shapes` are its constants."""
    out = attrs.pop("out", (1, 5, 9, 7))
    leaves = [inp(1, 6, 9, 7), *(const(*s) for s in shapes)]
    kernel = op(composite, list(range(len(leaves))), out, **conv_attrs(**attrs))
    row = "depthwise_conv2d" if "depthwise" in composite else "conv2d"
    return Case(name=name, row=row, make=make, inputs=((1, 6, 9, 7),), nodes=(*leaves, kernel))


_W, _B, _N = (5, 6, 3, 3), (1, 5, 1, 1), (5,)
_WORDS = ["1", "0.001000", "1", "1"]

CASES = (
    _conv_case("conv", "openclml.nn.conv2d", _conv(), _W),
    _conv_case("conv_bias", "openclml.bias.nn.conv2d", _conv(bias=True), _W, _B),
    _conv_case(
        "conv_relu",
        "openclml.relu.nn.conv2d",
        _conv(tail=nn.relu),
        _W,
        activation_type="relu",
    ),
    _conv_case(
        "conv_bias_relu",
        "openclml.relu.bias.nn.conv2d",
        _conv(bias=True, tail=nn.relu, strides=(2, 1), dilation=(1, 2), padding=(0, 2, 1, 2)),
        _W,
        _B,
        strides=[2, 1],
        dilation=[1, 2],
        padding=[0, 2, 1, 2],
        activation_type="relu",
        out=(1, 5, 4, 7),
    ),
    _conv_case(
        "conv_bias_relu6",
        "openclml.relu6.bias.nn.conv2d",
        _conv(bias=True, tail=_relu6),
        _W,
        _B,
        activation_type="relu6",
    ),
    _conv_case(
        "conv_pad",
        "openclml.pad.nn.conv2d",
        _conv(pad=True, padding=(0, 0, 0, 0)),
        _W,
        padding=[1, 3, 2, 0],
        out=(1, 5, 10, 8),
    ),
    _conv_case(
        "conv_norm",
        "openclml.tuple.bn.nn.conv2d",
        _conv(norm=True),
        _W,
        *[_N] * 4,
        batchnorm=_WORDS,
    ),
    _conv_case(
        "conv_bias_norm_relu",
        "openclml.relu.tuple.bn.bias.nn.conv2d",
        _conv(bias=True, norm=True, tail=nn.relu),
        _W,
        _B,
        *[_N] * 4,
        batchnorm=_WORDS,
        activation_type="relu",
    ),
    _conv_case(
        "depthwise",
        "openclml.relu.bias.nn.depthwise_conv2d",
        _conv(6, groups=6, bias=True, tail=nn.relu),
        (1, 6, 3, 3),
        (1, 6, 1, 1),
        groups=6,
        kernel_layout="IOHW",
        activation_type="relu",
        out=(1, 6, 9, 7),
    ),
    Case(
        name="transposed",
        row="conv2d_transpose",
        make=_transposed,
        inputs=((1, 6, 5, 7),),
        nodes=(
            inp(1, 6, 5, 7),
            const(4, 6, 4, 4),
            const(1, 4, 1, 1),
            op(
                "openclml.relu.bias.nn.conv2d_transpose",
                [0, 1, 2],
                (1, 4, 10, 14),
                **conv_attrs(strides=[2, 2], output_padding=[0, 0], activation_type="relu"),
            ),
        ),
    ),
    Case(
        name="batch_norm",
        row="batch_norm",
        make=_batch_norm,
        inputs=((1, 6, 5, 4),),
        nodes=(
            inp(1, 6, 5, 4),
            *[const(6)] * 4,
            op(
                "openclml.nn.batch_norm",
                [0, 1, 2, 3, 4],
                (1, 6, 5, 4),
                **{**_NORM, "epsilon": 3e-4, "training": 0},
            ),
        ),
    ),
    Case(
        name="scale_shift",
        row="scale_shift",
        make=_scale_shift,
        inputs=((1, 6, 5, 4),),
        nodes=(
            inp(1, 6, 5, 4),
            *[const(6)] * 4,
            op(
                "openclml.nn.batch_norm",
                [0, 1, 2, 3, 4],
                (1, 6, 5, 4),
                **{**_NORM, "epsilon": 0.0, "training": 0},
            ),
        ),
    ),
    Case(
        name="relu",
        row="relu",
        make=lambda _, x: nn.relu(x),
        inputs=((1, 5, 4, 3),),
        nodes=(
            inp(1, 5, 4, 3),
            op("openclml.relax.nn.relu", [0], (1, 5, 4, 3), activation_type="relu"),
        ),
    ),
    Case(
        name="relu6",
        row="relu6",
        make=lambda _, x: _relu6(x),
        inputs=((1, 5, 4, 3),),
        nodes=(inp(1, 5, 4, 3), op("openclml.nn.relu6", [0], (1, 5, 4, 3))),
    ),
    Case(
        name="clip",
        row="clip",
        make=lambda _, x: relax.op.clip(x, -0.5, 0.25),
        inputs=((1, 5, 4, 3),),
        nodes=(inp(1, 5, 4, 3), op("clip", [0], (1, 5, 4, 3), a_max=0.25, a_min=-0.5)),
    ),
    *(
        Case(
            name=name,
            row="divide" if name == "divide" else "binary",
            make=lambda _, x, y, name=name: getattr(relax.op, name)(x, y),
            inputs=((1, 5, 4, 3), (1, 5, 4, 3)),
            nodes=(
                inp(1, 5, 4, 3),
                inp(1, 5, 4, 3),
                op(f"openclml.relax.{name}", [0, 1], (1, 5, 4, 3)),
            ),
        )
        for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum")
    ),
    Case(
        name="max_pool",
        row="max_pool2d",
        make=lambda _, x: nn.max_pool2d(x, (3, 2), (2, 1), (1, 0, 1, 1)),
        inputs=((1, 5, 9, 8),),
        nodes=(
            inp(1, 5, 9, 8),
            op(
                "openclml.nn.max_pool2d",
                [0],
                (1, 5, 5, 8),
                **pool_attrs(pool_size=[3, 2], strides=[2, 1], padding=[1, 0, 1, 1]),
            ),
        ),
    ),
    Case(
        name="avg_pool",
        row="avg_pool2d",
        make=lambda _, x: nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1)),
        inputs=((1, 5, 9, 7),),
        nodes=(
            inp(1, 5, 9, 7),
            op("openclml.nn.avg_pool2d", [0], (1, 5, 5, 4), **pool_attrs(padding=[1, 1, 1, 1])),
        ),
    ),
    Case(
        name="global_avg_pool",
        row="global_avg_pool2d",
        make=lambda _, x: relax.op.mean(x, [2, 3], keepdims=True),
        inputs=((1, 5, 9, 4),),
        nodes=(
            inp(1, 5, 9, 4),
            op("openclml.nn.global_avg_pool2d", [0], (1, 5, 1, 1), axis=[2, 3], keepdims=1),
        ),
    ),
    Case(
        name="global_avg_pool_squeezed",
        row="global_avg_pool2d",
        make=lambda _, x: relax.op.mean(x, [-1, -2], keepdims=False),
        inputs=((1, 5, 9, 4),),
        nodes=(
            inp(1, 5, 9, 4),
            op("openclml.nn.global_avg_pool2d", [0], (1, 5), axis=[2, 3], keepdims=0),
        ),
    ),
    Case(
        name="adaptive_pool",
        row="global_avg_pool2d",
        make=lambda _, x: nn.adaptive_avg_pool2d(x, (1, 1)),
        inputs=((1, 5, 9, 4),),
        nodes=(
            inp(1, 5, 9, 4),
            op("openclml.nn.global_avg_pool2d", [0], (1, 5, 1, 1), axis=[2, 3], keepdims=1),
        ),
    ),
    Case(
        name="global_max_pool",
        row="global_max_pool2d",
        make=lambda _, x: relax.op.max(x, [2, 3], keepdims=True),
        inputs=((1, 5, 4, 9),),
        nodes=(
            inp(1, 5, 4, 9),
            op("openclml.nn.global_max_pool2d", [0], (1, 5, 1, 1), axis=[2, 3], keepdims=1),
        ),
    ),
    *(
        Case(
            name=f"softmax_{len(shape)}_{axis}",
            row="softmax",
            make=lambda _, x, axis=axis: nn.softmax(x, axis),
            inputs=(shape,),
            nodes=(inp(*shape), op("openclml.relax.nn.softmax", [0], shape, axis=axis)),
        )
        for shape, axis in (
            ((1, 9), 1),
            ((1, 7, 9), -1),
            ((1, 5, 4, 3), 1),
            ((1, 5, 4, 3), -1),
        )
    ),
    Case(
        name="reshape",
        row="reshape",
        make=lambda _, x: relax.op.reshape(x, (1, 20, 3)),
        inputs=((1, 5, 4, 3),),
        nodes=(inp(1, 5, 4, 3), op("openclml.reshape", [0], (1, 20, 3))),
    ),
    Case(
        name="concat",
        row="concat",
        make=lambda _, x, y: relax.op.concat([x, y, x], 1),
        inputs=((1, 5, 4, 3), (1, 2, 4, 3)),
        nodes=(
            inp(1, 5, 4, 3),
            inp(1, 2, 4, 3),
            op("concatenate", [0, 1, 0], (1, 12, 4, 3), axis=1),
        ),
    ),
    Case(
        name="pad",
        row="pad",
        make=lambda _, x: nn.pad(x, [0, 0, 0, 0, 1, 2, 0, 3]),
        inputs=((1, 5, 4, 3),),
        nodes=(
            inp(1, 5, 4, 3),
            op("nn.pad", [0], (1, 5, 7, 6), pad_mode="constant", pad_width=[1, 2, 0, 3]),
        ),
    ),
    Case(
        name="pad_reflect",
        row="pad",
        make=lambda _, x: nn.pad(x, [0, 0, 0, 0, 1, 2, 2, 1], pad_mode="reflect"),
        inputs=((1, 5, 4, 3),),
        nodes=(
            inp(1, 5, 4, 3),
            op("nn.pad", [0], (1, 5, 7, 6), pad_mode="reflect", pad_width=[1, 2, 2, 1]),
        ),
    ),
    Case(
        name="dense",
        row="dense",
        make=_dense(7, bias=False),
        inputs=((3, 5),),
        nodes=(inp(3, 5), const(7, 5), op("nn.dense", [0, 1], (3, 7), units=7)),
    ),
    Case(
        name="dense_bias",
        row="dense",
        make=_dense(7, bias=True),
        inputs=((1, 5),),
        nodes=(
            inp(1, 5),
            const(7, 5),
            const(1, 7),
            op("nn.dense", [0, 1, 2], (1, 7), units=7),
        ),
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
    Case(
        name="batch_matmul",
        row="batch_matmul",
        make=lambda _, x, y: relax.op.matmul(x, y),
        inputs=((1, 4, 5), (1, 5, 6)),
        nodes=(
            inp(1, 4, 5),
            inp(1, 5, 6),
            op("nn.batch_matmul", [0, 1], (1, 4, 6), transpose_b=0),
        ),
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
    Case(
        name="depth_to_space",
        row="depth_to_space",
        make=_depth_to_space,
        inputs=((1, 12, 4, 5),),
        nodes=(inp(1, 12, 4, 5), op("nn.depth_to_space", [0], (1, 3, 8, 10), block_size=2)),
    ),
    *(
        Case(
            name=f"upsampling_{mode}",
            row="upsampling",
            make=_resize(mode),
            inputs=((1, 3, 4, 5),),
            nodes=(
                inp(1, 3, 4, 5),
                op(
                    "nn.upsampling",
                    [0],
                    (1, 3, 8, 15),
                    align_corners=int(mode == "align_corners"),
                ),
            ),
        )
        for mode in ("align_corners", "asymmetric")
    ),
)
