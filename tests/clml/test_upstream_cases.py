"""The cases of TVM's own CLML tests, stated anew: those of 0.27 and those of v0.18.

TVM's partition (`OpenCLMLOffLoad`) runs on the wheel with our code generator; the graph must be
the one that TVM's tests expect.  Our own partition must offload the same cases.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.backend.adreno.clml import OpenCLMLOffLoad

from adrenoc.clml import composites
from tests.clml.regions import (
    Emulate,
    build,
    constant,
    cut,
    matches_of,
    module_of,
    only_document,
    random,
    reference,
    without_names,
)
from tests.clml.rows import Case, const, conv_attrs, expected_nodes, inp, op, pool_attrs

nn = relax.op.nn
_TOLERANCE = 1e-3
"""What TVM's tests allow."""


@pytest.fixture(scope="module", autouse=True)
def _codegen() -> None:
    composites.register()


def offloaded_by_tvm(module: tvm.IRModule) -> list[dict[str, Any]]:
    """The nodes of the one region that TVM's partition makes, names left out."""
    made = OpenCLMLOffLoad()(module)
    (runtime,) = made.attrs["external_mods"]
    graph = json.loads(runtime.inspect_source())
    names = [str(n) for n in runtime["get_const_vars"]()]
    assert names == [n["name"] for n in graph["nodes"] if n["op"] == "const"]
    constants = made.attrs.get("const_name_to_constant", {})
    assert set(names) == {str(name) for name in constants}
    return without_names(graph)


def check(case: Case, *, same: bool = True) -> None:
    """TVM's partition gives the expected nodes; ours the same, unless it is known to differ."""
    expected = expected_nodes(case, "float32")
    assert offloaded_by_tvm(case.module()) == expected
    if same:
        assert without_names(only_document(case.module())) == expected


# TVM 0.27: tests/python/relax/backend/adreno/test_clml_ops.py


def _convolution(
    data: tuple[int, ...],
    kernel: tuple[int, int],
    outs: int,
    pad: int,
    *,
    norm: bool = False,
    explicit_pad: int | None = None,
    bias: bool = False,
    relu: bool = False,
) -> Case:
    ins = data[1]

    def make(emit: Any, x: Any) -> Any:
        if explicit_pad is not None:
            x = emit(nn.pad(x, [0, 0, 0, 0, *[explicit_pad] * 4]))
        value = emit(nn.conv2d(x, constant(random(outs, ins, *kernel)), padding=(pad,) * 4))
        if bias:
            value = emit(relax.op.add(value, constant(random(1, outs, 1, 1))))
        if norm:
            vectors = [constant(np.abs(random(outs, seed=s)) + 0.1) for s in range(4)]
            item = nn.batch_norm(value, *vectors, axis=1, epsilon=3e-4, training=False)
            value = emit(relax.TupleGetItem(emit(item), 0))
        return nn.relu(value) if relu else value

    widths = pad + (explicit_pad or 0)
    out = (1, outs, data[2] + 2 * widths - kernel[0] + 1, data[3] + 2 * widths - kernel[1] + 1)
    has_bias = bias or norm  # a batch norm is folded: its offset stays
    parts = ("relu.",) * relu + ("bias.",) * has_bias + ("pad.",) * (explicit_pad is not None)
    leaves = (const(outs, ins, *kernel), *[const(1, outs, 1, 1)] * has_bias)
    shown = explicit_pad if explicit_pad is not None else pad
    attrs = conv_attrs(padding=[shown] * 4, **({"activation_type": "relu"} if relu else {}))
    name = f"openclml.{''.join(parts)}nn.conv2d"
    kernel_node = op(name, list(range(len(leaves) + 1)), out, **attrs)
    return Case(
        name=name, row="conv2d", make=make, inputs=(data,), nodes=(inp(*data), *leaves, kernel_node)
    )


@pytest.mark.parametrize(
    "case",
    [
        _convolution((1, 256, 14, 14), (3, 3), 512, 1, bias=True, relu=True),
        _convolution((1, 512, 7, 7), (1, 1), 1024, 0, bias=True, relu=True),
        _convolution((1, 64, 7, 7), (1, 3), 64, 0, bias=True, relu=True),
    ],
    ids=lambda case: str(case.inputs[0]),
)
def test_conv2d_bias_relu(case: Case):
    check(case)


@pytest.mark.parametrize(
    "case",
    [
        _convolution((1, 3, 224, 224), (3, 3), 64, 1, norm=True),
        _convolution((1, 3, 224, 224), (3, 3), 64, 0, norm=True, explicit_pad=1),
        _convolution((1, 64, 7, 7), (3, 1), 64, 0, norm=True, relu=True, explicit_pad=0),
    ],
    ids=["norm", "pad_norm", "pad_norm_relu"],
)
def test_conv2d_batch_norm(case: Case):
    # In a compilation of ours `simplify` folds the norm before; the partition alone keeps it.
    check(case, same=False)
    (found,) = matches_of(case.module()).found
    assert "bn" in found.operators[0].name and len(found.operators[0].inputs) == 6


@pytest.mark.parametrize(
    ("data", "kernel", "pad"),
    [
        ((1, 256, 100, 100), (64, 256, 4, 4), 0),
        ((1, 64, 200, 200), (64, 64, 4, 4), 1),
        ((1, 64, 400, 400), (16, 64, 4, 4), 1),
    ],
)
def test_conv2d_transpose(data: tuple[int, ...], kernel: tuple[int, ...], pad: int):
    def make(_: Any, x: Any) -> Any:
        return nn.conv2d_transpose(
            x,
            constant(random(*kernel)),
            strides=(2, 2),
            padding=(pad,) * 4,
            kernel_layout="OIHW",
        )

    out = (1, kernel[0], *((d - 1) * 2 - 2 * pad + 4 for d in data[2:]))
    attrs = conv_attrs(padding=[pad] * 4, strides=[2, 2], output_padding=[0, 0])
    node = op("openclml.nn.conv2d_transpose", [0, 1], out, **attrs)
    check(
        Case(
            name="transposed",
            row="conv2d_transpose",
            make=make,
            inputs=(data,),
            nodes=(inp(*data), const(*kernel), node),
        )
    )


@pytest.mark.parametrize("shape", [(1, 64, 14, 14), (1, 14, 256, 256), (1, 256, 1, 1)])
def test_batch_norm(shape: tuple[int, ...]):
    def make(emit: Any, x: Any) -> Any:
        vectors = [constant(np.abs(random(shape[1], seed=s)) + 0.1) for s in range(4)]
        norm = emit(nn.batch_norm(x, *vectors, axis=1, epsilon=3e-4))
        return relax.TupleGetItem(norm, 0)

    attrs = {
        "axis": 1,
        "epsilon": 3e-4,
        "momentum": 0.1,
        "training": 1,
        "center": 1,
        "scale": 1,
    }
    node = op("openclml.nn.batch_norm", [0, 1, 2, 3, 4], shape, **attrs)
    leaves = [const(shape[1])] * 4
    case = Case(
        name="norm",
        row="batch_norm",
        make=make,
        inputs=(shape,),
        nodes=(inp(*shape), *leaves, node),
    )
    check(case, same=False)
    # `training` is the default of Relax, and means the batch's own statistics: TVM offloads it as
    # if it did not, we do not.
    (refusal,) = matches_of(case.module()).refusals
    assert "in training" in refusal.reason


_BINARY = ("add", "subtract", "multiply", "divide", "minimum", "maximum")


@pytest.mark.parametrize("name", _BINARY)
@pytest.mark.parametrize("shape", [(1, 64, 14, 14), (1, 256)])
def test_binary(name: str, shape: tuple[int, ...]):
    node = op(f"openclml.relax.{name}", [0, 1], shape)
    check(
        Case(
            name=name,
            row="binary",
            make=lambda _, x, y: getattr(relax.op, name)(x, y),
            inputs=(shape, shape),
            nodes=(inp(*shape), inp(*shape), node),
        )
    )


@pytest.mark.parametrize(
    "shape", [(1, 64, 14, 14), (1, 256, 1, 1), (1, 14, 256, 256), (1, 14, 14, 256)]
)
def test_unary(shape: tuple[int, ...]):
    node = op("openclml.relax.nn.relu", [0], shape, activation_type="relu")
    nodes = (inp(*shape), node)
    check(Case(name="relu", row="relu", make=lambda _, x: nn.relu(x), inputs=(shape,), nodes=nodes))


@pytest.mark.parametrize("kind", ["max_pool2d", "avg_pool2d"])
@pytest.mark.parametrize(
    ("shape", "stride"),
    [((1, 64, 147, 147), 2), ((1, 256, 17, 17), 1), ((1, 1024, 14, 14), 1)],
)
def test_pool(kind: str, shape: tuple[int, ...], stride: int):
    out = (*shape[:2], *((d - 3) // stride + 1 for d in shape[2:]))
    node = op(f"openclml.nn.{kind}", [0], out, **pool_attrs(strides=[stride, stride]))
    check(
        Case(
            name=kind,
            row=kind,
            make=lambda _, x: getattr(nn, kind)(x, (3, 3), (stride, stride)),
            inputs=(shape,),
            nodes=(inp(*shape), node),
        )
    )


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((1, 3, 32, 32), (1, 4, -1, 32)),
        ((1, 4, 8, 32), (1, 4, -1, 16)),
        ((1, 64, 3, 3), (1, 32, 3, -1)),
    ],
)
def test_reshape(shape: tuple[int, ...], wanted: tuple[int, ...]):
    known = -math.prod(wanted)
    out = tuple(math.prod(shape) // known if d < 0 else d for d in wanted)
    nodes = (inp(*shape), op("openclml.reshape", [0], out))
    make = lambda _, x: relax.op.reshape(x, wanted)  # noqa: E731
    check(Case(name="reshape", row="reshape", make=make, inputs=(shape,), nodes=nodes))


@pytest.mark.parametrize(
    ("shape", "keep"),
    [
        ((1, 64, 147, 147), True),
        ((1, 256, 17, 17), False),
        ((1, 1024, 14, 14), True),
        ((1, 32, 256, 256), False),
    ],
)
def test_global_avg_pool(shape: tuple[int, ...], keep: bool):
    out = (*shape[:2], 1, 1) if keep else shape[:2]
    node = op("openclml.nn.global_avg_pool2d", [0], out, axis=[2, 3], keepdims=int(keep))
    make = lambda _, x: relax.op.mean(x, [2, 3], keepdims=keep)  # noqa: E731
    nodes = (inp(*shape), node)
    check(Case(name="mean", row="global_avg_pool2d", make=make, inputs=(shape,), nodes=nodes))


@pytest.mark.parametrize(
    ("k", "n", "m"),
    [
        *[(4096, 11008, 256), (2048, 32768, 128), (4096, 4096, 512), (4096, 22016, 64)],
        *[(16384, 2048, 128), (2048, 2560, 1024), (3072, 9216, 256), (14336, 4096, 128)],
        *[(1536, 17920, 128), (8960, 1536, 1024), (4096, 28672, 1)],
    ],
)
def test_dequant_matmul(k: int, n: int, m: int):
    """Interface 5 alone: the graph of the composite that TVM's pass for language models cuts out.

    The number of rows is dynamic there, so -1; inputs are weights, scales, data.
    """
    rows = tvm.tirx.Var("rows", "int64") if m != 1 else 1
    packed = relax.Var("packed", relax.TensorType((k // 8, n), "uint32"))
    scales = relax.Var("scales", relax.TensorType((k // 32, n), "float16"))
    data = relax.Var("data", relax.TensorType((1, rows, k), "float16"))
    out = relax.TensorType((1, rows, n), "float16")
    inner = [relax.Var(v.name, v.ty) for v in (packed, scales, data)]
    weights = relax.Var("weights", relax.TensorType((k, n), "float16"))
    decode = relax.call_dps_packed("dequantize", relax.Tuple(inner[:2]), weights.ty)
    product = relax.Var("product", out)
    block = relax.BindingBlock(
        [
            relax.VarBinding(weights, decode),
            relax.VarBinding(product, relax.op.matmul(inner[2], weights)),
        ]
    )
    composite = relax.Function(inner, relax.SeqExpr([block], product), out)
    composite = composite.with_attr("Composite", "openclml.dequant_matmul")
    call_op = relax.Var("composite", composite.ty)
    result = relax.Var("result", out)
    call = relax.Call(call_op, [packed, scales, data])
    outer_block = relax.BindingBlock(
        [relax.VarBinding(call_op, composite), relax.VarBinding(result, call)]
    )
    outer = relax.Function([packed, scales, data], relax.SeqExpr([outer_block], result), out)
    graph, constants = composites.composite_graph(outer, {})
    rows_shown = -1 if m != 1 else 1
    (kernel,) = [node for node in graph["nodes"] if node["op"] == "kernel"]
    assert constants == []
    assert kernel["name"] == "openclml.dequant_matmul"
    assert kernel["inputs"] == [[0, 0, 0], [1, 0, 0], [2, 0, 0]]
    assert kernel["attrs"]["shape"] == [[1, rows_shown, n]]
    assert [node["attrs"]["dtype"] for node in graph["nodes"]] == [
        ["uint32"],
        *[["float16"]] * 3,
    ]


# v0.18: tests/python/contrib/test_clml/test_ops.py.  What it offloads, ours must; the numbers of
# the smaller ones are compared with TVM's on the CPU.


def _v18_conv(channels: int, size: int, outs: int, kernel: tuple[int, int], **how: Any) -> Any:
    def make(emit: Any, x: Any) -> Any:
        groups = how.get("groups", 1)
        stride, pad = how.get("stride", 1), how.get("pad", 0)
        weight = constant(random(outs, channels // groups, *kernel))
        conv = nn.conv2d(x, weight, strides=(stride,) * 2, padding=(pad,) * 4, groups=groups)
        value = emit(conv)
        if how.get("bias"):
            value = emit(relax.op.add(value, constant(random(1, outs, 1, 1, seed=1))))
        return nn.relu(value) if how.get("relu") else value

    return make, ((1, channels, size, size),)


def _v18_pool(kind: str, channels: int, size: int) -> Any:
    if kind == "max_pool2d":
        return (lambda _, x: nn.max_pool2d(x, (3, 3), (2, 2))), ((1, channels, size, size),)
    return (
        lambda _, x: nn.avg_pool2d(x, (3, 3), (1, 1), (0, 0, 1, 1)),
        ((1, channels, size, size),),
    )


def _v18_dense(rows: int, columns: int, units: int, bias: bool) -> Any:
    def make(emit: Any, x: Any) -> Any:
        weight = constant(random(columns, units))
        value = relax.op.matmul(x, weight)
        return relax.op.add(emit(value), constant(random(units, seed=1))) if bias else value

    return make, ((rows, columns),)


_V18 = {
    "conv 3x3": _v18_conv(14, 10, 4, (3, 3), pad=1, bias=True),
    "conv 2x2": _v18_conv(16, 10, 4, (2, 2), pad=1, bias=True),
    "conv 5x5 s2": _v18_conv(14, 10, 4, (5, 5), pad=1, stride=2, bias=True),
    "conv 5x5": _v18_conv(6, 64, 4, (5, 5), pad=1, bias=True, relu=True),
    "conv 1x3": _v18_conv(16, 20, 16, (1, 3), relu=True),
    "conv 3x1": _v18_conv(64, 20, 64, (3, 1), relu=True),
    "depthwise 3x3": _v18_conv(11, 20, 11, (3, 3), pad=1, groups=11, relu=True),
    "depthwise 5x5": _v18_conv(32, 20, 32, (5, 5), pad=2, groups=32, bias=True),
    "depthwise s2": _v18_conv(128, 8, 128, (3, 3), pad=2, stride=2, groups=128),
    "depthwise p0": _v18_conv(64, 32, 64, (5, 5), groups=64),
    "depthwise big": _v18_conv(16, 64, 16, (3, 3), pad=1, stride=2, groups=16, bias=True),
    "concat 4-D": (lambda _, x, y: relax.op.concat([x, y], 1), ((1, 64, 64, 40),) * 2),
    "concat unequal": (
        lambda _, x, y: relax.op.concat([x, y], 1),
        ((1, 1280, 32, 32), (1, 640, 32, 32)),
    ),
    "concat 2-D": (lambda _, x, y: relax.op.concat([x, y], 1), ((1, 64), (1, 32))),
    "max 192": _v18_pool("max_pool2d", 192, 71),
    "max 2048": _v18_pool("max_pool2d", 2048, 17),
    "avg 192": _v18_pool("avg_pool2d", 192, 35),
    "avg 1280": _v18_pool("avg_pool2d", 1280, 8),
    "dense rows": _v18_dense(5, 16, 32, bias=False),
    "dense square": _v18_dense(256, 256, 256, bias=False),
    "dense vector": _v18_dense(1, 256, 100, bias=False),
    "dense bias": _v18_dense(1, 16, 32, bias=True),
    "dense bias small": _v18_dense(1, 5, 4, bias=True),
    "add": (lambda _, x, y: relax.op.add(x, y), ((1, 16),) * 2),
    "divide": (lambda _, x, y: relax.op.divide(x, y), ((1, 10),) * 2),
    "maximum": (lambda _, x, y: relax.op.maximum(x, y), ((1, 512),) * 2),
    "relu": (lambda _, x: nn.relu(x), ((1, 256),)),
    "batch_matmul 512": (
        lambda emit, x, y: relax.op.matmul(x, y),
        ((1, 128, 32), (1, 32, 128)),
    ),
    "softmax 5": (lambda _, x: nn.softmax(x, 1), ((1, 5),)),
    "softmax 1000": (lambda _, x: nn.softmax(x, -1), ((1, 1000),)),
    "softmax channels": (lambda _, x: nn.softmax(x, 1), ((1, 100, 64, 100),)),
    "softmax last": (lambda _, x: nn.softmax(x, -1), ((1, 64, 5, 32),)),
    "softmax last big": (lambda _, x: nn.softmax(x, 3), ((1, 64, 100, 100),)),
    "reshape": (
        lambda emit, x: relax.op.reshape(emit(nn.relu(x)), (1, 40, 4096)),
        ((1, 40, 64, 64),),
    ),
    "reshape to four": (
        lambda emit, x: relax.op.reshape(emit(nn.relu(x)), (1, 1, -1, 768)),
        ((1, 77, 768),),
    ),
    "global avg": (lambda _, x: relax.op.mean(x, [2, 3], keepdims=True), ((1, 192, 35, 35),)),
    "global max": (lambda _, x: relax.op.max(x, [2, 3], keepdims=True), ((1, 64, 147, 147),)),
    "clip": (lambda _, x: relax.op.clip(x, 0, 6), ((1, 64, 8, 8),)),
}


@pytest.mark.parametrize("name", _V18)
def test_v18(name: str, device: Any, emulate: Emulate):
    make, shapes = _V18[name]
    module = module_of(make, *shapes)
    found = cut(module)
    assert len(found.regions) == 1, found.decisions
    inputs = [
        random(*shape, seed=i) + (3 if name == "divide" else 0) for i, shape in enumerate(shapes)
    ]
    emulate()
    (value,) = build(module, device).run(inputs)
    (expected,) = reference(module, inputs)
    assert np.allclose(value, expected, rtol=_TOLERANCE, atol=_TOLERANCE)
