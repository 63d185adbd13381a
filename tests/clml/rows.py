"""A small function for each row of the pattern table, with the graph that it has to become.

The documents are written by hand from TVM's code generator (names, order of inputs, attributes)
and, for what TVM 0.27 does not emit any more, from what its runtime and its v0.18 read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax

from tests.clml.regions import Make, Shape, constant, module_of, random


@dataclass(frozen=True, kw_only=True)
class Case:
    """One function and the nodes that it becomes.

    `row` is the one of the table that finds it.  `by_tvm`: the partition that TVM 0.27 ships gives
    the same nodes.
    """

    name: str
    row: str
    make: Make
    inputs: tuple[Shape, ...]
    nodes: tuple[Any, ...] = field(repr=False)
    by_tvm: bool = False

    def module(self, dtype: str = "float32"):
        return module_of(self.make, *self.inputs, dtype=dtype)


def inp(*shape: int) -> tuple[str, Shape]:
    return ("input", shape)


def const(*shape: int) -> tuple[str, Shape]:
    return ("const", shape)


def op(name: str, inputs: list[int], shape: Shape, **attrs) -> tuple[Any, ...]:
    """An operator that reads the nodes of these indices."""
    return ("kernel", name, inputs, shape, attrs)


def one(
    name: str,
    row: str,
    make: Make,
    inputs: tuple[Shape, ...],
    kernel: str,
    out: Shape = (),
    *,
    constants: tuple[Shape, ...] = (),
    by_tvm: bool = False,
    **attrs,
) -> Case:
    """A case of one operator that reads all inputs and then all constants.

    `out` is the result's shape where it is not that of the first input.
    """
    leaves = (*(inp(*s) for s in inputs), *(const(*s) for s in constants))
    node = op(kernel, list(range(len(leaves))), out or inputs[0], **attrs)
    return Case(name=name, row=row, make=make, inputs=inputs, nodes=(*leaves, node), by_tvm=by_tvm)


def expected_nodes(case: Case, dtype: str) -> list[dict[str, Any]]:
    """The nodes of a case as JSON, names of inputs and constants left out."""
    made = []
    for entry in case.nodes:
        if entry[0] != "kernel":
            attrs: dict[str, Any] = {"shape": [list(entry[1])], "dtype": [dtype]}
            made.append({"op": entry[0], "name": "", "attrs": attrs})
            continue
        _, name, inputs, shape, extra = entry
        facts = {"num_inputs": len(inputs), "num_outputs": 1, **extra}
        made.append(
            {
                "op": "kernel",
                "name": name,
                "inputs": [[index, 0, 0] for index in inputs],
                "attrs": {"shape": [list(shape)], "dtype": [dtype], **facts},
            }
        )
    return made


def conv_attrs(**changes) -> dict[str, Any]:
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


def pool_attrs(**changes) -> dict[str, Any]:
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


def norm_attrs(epsilon: float, training: int = 0) -> dict[str, Any]:
    shared = {"axis": 1, "momentum": 0.1, "center": 1, "scale": 1}
    return {**shared, "epsilon": epsilon, "training": training}


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
    row, corners = "upsampling", {"align_corners": int(mode == "align_corners")}
    return one(name, row, make, ((1, 3, 4, 5),), "nn.upsampling", out, **corners)


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


def _global(
    name: str, reduce: Callable[..., Any], *axes: int, kind: str = "avg", keeps: bool = False
) -> Case:
    kernel, facts = f"nn.global_{kind}_pool2d", {"axis": [2, 3], "keepdims": int(keeps)}
    make = lambda _, x: reduce(x, [*axes], keepdims=keeps)  # noqa: E731
    row, shapes = kernel.removeprefix("nn."), ((1, 5, 9, 4),)
    out, facts["by_tvm"] = (1, 5, 1, 1) if keeps else (1, 5), kind == "avg" and axes[0] > 0
    return one(name, row, make, shapes, f"openclml.{kernel}", out, **facts)


def _softmax(shape: Shape, axis: int) -> Case:
    name = f"softmax_{len(shape)}_{axis}"
    make = lambda _, x: nn.softmax(x, axis)  # noqa: E731
    kernel, along = "openclml.relax.nn.softmax", axis % len(shape)
    return one(name, "softmax", make, (shape,), kernel, by_tvm=True, axis=along)


def _pad(name: str, mode: str, widths: list[int], out: Shape) -> Case:
    make = lambda _, x: nn.pad(x, [0, 0, 0, 0, *widths], pad_mode=mode)  # noqa: E731
    return one(name, "pad", make, _X, "nn.pad", out, pad_mode=mode, pad_width=[*widths])


_W, _B, _N = (5, 6, 3, 3), (1, 5, 1, 1), (5,)
_NORMED = {"batchnorm": ["1", "0.001000", "1", "1"], "by_tvm": False}  # a pass before folds it
_X, _X6, _WIDE = ((1, 5, 4, 3),), ((1, 6, 5, 4),), ((1, 6, 5, 7),)
_RELU, _RELU6 = {"activation_type": "relu"}, {"activation_type": "relu6"}
_UNEVEN = {"strides": (2, 1), "dilation": (1, 2), "padding": (0, 2, 1, 2)}
_NONE, _TWO = (0, 0, 0, 0), (2, 2, 2, 2)


def _convs() -> Iterator[Case]:
    yield _conv_case("conv", "nn.conv2d", _conv(), _W)
    yield _conv_case("conv_bias", "bias.nn.conv2d", _conv(bias=True), _W, _B)
    yield _conv_case("conv_relu", "relu.nn.conv2d", _conv(tail=nn.relu), _W, **_RELU)
    facts = {key: list(value) for key, value in _UNEVEN.items()} | {**_RELU, "out": (1, 5, 4, 7)}
    uneven = _conv(bias=True, tail=nn.relu, **_UNEVEN)
    yield _conv_case("conv_bias_relu", "relu.bias.nn.conv2d", uneven, _W, _B, **facts)
    # TVM's pattern for clip has one argument, the operator three.
    facts, made = {**_RELU6, "by_tvm": False}, _conv(bias=True, tail=_relu6)
    yield _conv_case("conv_bias_relu6", "relu6.bias.nn.conv2d", made, _W, _B, **facts)
    facts, made = {"padding": [1, 3, 2, 0], "out": (1, 5, 10, 8)}, _conv(pad=True, padding=_NONE)
    yield _conv_case("conv_pad", "pad.nn.conv2d", made, _W, **facts)
    norms = [_N] * 4
    yield _conv_case("conv_norm", "tuple.bn.nn.conv2d", _conv(norm=True), _W, *norms, **_NORMED)
    name, composite = "conv_bias_norm_relu", "relu.tuple.bn.bias.nn.conv2d"
    made = _conv(bias=True, norm=True, tail=nn.relu)
    yield _conv_case(name, composite, made, _W, _B, *norms, **_NORMED, **_RELU)
    # It is an nn.conv2d in TVM, which its own runtime refuses.
    deep = {"groups": 6, "kernel_layout": "IOHW", "by_tvm": False}
    made, facts = (
        _conv(6, groups=6, bias=True, tail=nn.relu),
        {**deep, **_RELU, "out": (1, 6, 9, 7)},
    )
    shapes = (1, 6, 3, 3), (1, 6, 1, 1)
    yield _conv_case("depthwise", "relu.bias.nn.depthwise_conv2d", made, *shapes, **facts)
    made, facts = _conv(kernel=(5, 5), strides=(2, 2)), {"strides": [2, 2], "out": (1, 5, 4, 3)}
    yield _conv_case("conv_5x5_steps", "nn.conv2d", made, (5, 6, 5, 5), **facts)
    made = _conv(kernel=(1, 3), padding=_NONE, tail=nn.relu)
    facts = {"padding": [0, 0, 0, 0], **_RELU, "out": (1, 5, 9, 5)}
    yield _conv_case("conv_1x3_relu", "relu.nn.conv2d", made, (5, 6, 1, 3), **facts)
    made = _conv(6, kernel=(5, 5), groups=6, strides=(2, 2), padding=_TWO)
    facts = {**deep, "strides": [2, 2], "padding": [2, 2, 2, 2], "out": (1, 6, 5, 4)}
    composite = "nn.depthwise_conv2d"
    yield _conv_case("depthwise_5x5_steps", composite, made, (1, 6, 5, 5), **facts)
    name, row, weight = "transposed_steps_of_one", "conv2d_transpose", random(6, 4, 3, 3)
    make = lambda _, x: nn.conv2d_transpose(x, constant(weight), padding=(1, 1, 1, 1))  # noqa: E731
    facts = {"constants": ((4, 6, 3, 3),), **conv_attrs(output_padding=[0, 0])}
    yield one(name, row, make, _WIDE, f"openclml.nn.{row}", (1, 4, 5, 7), **facts)
    facts = conv_attrs(strides=[2, 2], output_padding=[0, 0], **_RELU)
    facts |= {"constants": ((4, 6, 4, 4), (1, 4, 1, 1)), "by_tvm": True}
    kernel, out = f"openclml.relu.bias.nn.{row}", (1, 4, 10, 14)
    yield one("transposed", row, _transposed, _WIDE, kernel, out, **facts)


def _elementwise() -> Iterator[Case]:
    vectors, kernel = {"constants": ((6,),) * 4}, "openclml.nn.batch_norm"
    facts = {**vectors, **norm_attrs(3e-4), "by_tvm": True}
    yield one("batch_norm", "batch_norm", _batch_norm, _X6, kernel, **facts)
    facts = {**vectors, **norm_attrs(0.0)}
    yield one("scale_shift", "scale_shift", _scale_shift, _X6, kernel, **facts)
    relu = lambda _, x: nn.relu(x)  # noqa: E731
    yield one("relu", "relu", relu, _X, "openclml.relax.nn.relu", by_tvm=True, **_RELU)
    yield one("relu6", "relu6", lambda _, x: _relu6(x), _X, "openclml.nn.relu6")
    clip = lambda _, x: relax.op.clip(x, -0.5, 0.25)  # noqa: E731
    yield one("clip", "clip", clip, _X, "clip", a_max=0.25, a_min=-0.5)
    yield from map(_binary, ("add", "subtract", "multiply", "divide", "maximum", "minimum"))


def _pools() -> Iterator[Case]:
    largest = lambda _, x: nn.max_pool2d(x, (3, 2), (2, 1), (1, 0, 1, 1))  # noqa: E731
    facts = pool_attrs(pool_size=[3, 2], strides=[2, 1], padding=[1, 0, 1, 1], by_tvm=True)
    kernel, out = "openclml.nn.max_pool2d", (1, 5, 5, 8)
    yield one("max_pool", "max_pool2d", largest, ((1, 5, 9, 8),), kernel, out, **facts)
    mean = lambda _, x: nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1))  # noqa: E731
    facts = pool_attrs(padding=[1, 1, 1, 1], by_tvm=True)
    kernel, out = "openclml.nn.avg_pool2d", (1, 5, 5, 4)
    yield one("avg_pool", "avg_pool2d", mean, ((1, 5, 9, 7),), kernel, out, **facts)
    yield _global("global_avg_pool", relax.op.mean, 2, 3, keeps=True)
    yield _global("global_avg_pool_squeezed", relax.op.mean, 2, 3)
    yield _global("global_avg_pool_from_behind", relax.op.mean, -1, -2)
    yield _global("global_max_pool", relax.op.max, 2, 3, kind="max", keeps=True)
    for how in (((1, 9), 1), ((1, 7, 9), -1), (_X[0], 1), (_X[0], -1)):
        yield _softmax(*how)


def _moves() -> Iterator[Case]:
    flat, out = lambda _, x: relax.op.reshape(x, (1, 20, 3)), (1, 20, 3)
    yield one("reshape", "reshape", flat, _X, "openclml.reshape", out, by_tvm=True)
    yield Case(
        name="concat",
        row="concat",
        make=lambda _, x, y: relax.op.concat([x, y, x], 1),
        inputs=(*_X, (1, 2, 4, 3)),
        nodes=(inp(*_X[0]), inp(1, 2, 4, 3), op("concatenate", [0, 1, 0], (1, 12, 4, 3), axis=1)),
    )
    yield _pad("pad", "constant", [1, 2, 0, 3], (1, 5, 7, 6))
    yield _pad("pad_reflect", "reflect", [1, 2, 2, 1], (1, 5, 7, 6))


def _biased(name: str, row: str, data: Shape, weights: Shape, **attrs) -> Case:
    """A product with a bias of its own operator."""
    out = (*data[:-1], weights[-2])
    product = inp(*data), const(*weights), op(f"nn.{row}", [0, 1], out, **attrs)
    nodes = (*product, const(*out), op("openclml.relax.add", [2, 3], out))
    make = _dense(out[-1], bias=True)
    return Case(name=name, row=row, make=make, inputs=(data,), nodes=nodes)


def _products() -> Iterator[Case]:
    dense, out = _dense(7, bias=False), (3, 7)
    yield one("dense", "dense", dense, ((3, 5),), "nn.dense", out, constants=((7, 5),), units=7)
    dense, facts = _dense(7, bias=True), {"constants": ((7, 5), (1, 7)), "units": 7}
    yield one("dense_bias", "dense", dense, ((1, 5),), "nn.dense", (1, 7), **facts)
    yield _biased("dense_rows_bias", "dense", (3, 5), (7, 5), units=7)
    name, left, out = "batch_matmul", (1, 4, 5), (1, 4, 6)
    product = lambda _, x, y: relax.op.matmul(x, y)  # noqa: E731
    yield one(name, name, product, (left, (1, 5, 6)), f"nn.{name}", out, transpose_b=0)
    yield _biased("linear", name, left, (1, 6, 5), transpose_b=1)

    def turned(emit, x, y):
        return relax.op.matmul(x, emit(relax.op.permute_dims(y, [0, 2, 1])))

    shapes = (left, (1, 6, 5))
    yield one(f"{name}_turned", name, turned, shapes, f"nn.{name}", out, transpose_b=1)


def _planes() -> Iterator[Case]:
    yield from map(_depth_to_space, (2, 4))
    for mode in ("align_corners", "asymmetric"):
        for plane in ((8, 15), (8, 5)):
            yield _resize(mode, *plane)


CASES = (*_convs(), *_elementwise(), *_pools(), *_moves(), *_products(), *_planes())
