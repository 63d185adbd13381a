"""The operator cases of TVM 0.27, restated: its own partition on its wheel, ours, and the numbers.

They are those of `tests/python/relax/backend/adreno/test_clml_ops.py`.  A parameter set is a case
that is named after its test, so `COUNTS` shows whether all are here.  TVM's partition
(`OpenCLMLOffLoad`) runs with our code generator; the graph has to be the one that TVM's test
expects.  Our own partition offloads the same cases, by the same graph but where it is said.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.backend.adreno import clml as tvm_clml

from tests.clml import composites
from tests.clml.documents import Case, conv_attrs, expected_nodes, norm_attrs, one, pool_attrs
from tests.clml.regions import (
    Emulate,
    Shape,
    by_emulator,
    constant,
    matches_of,
    offloaded_by_tvm,
    only_document,
    random,
    without_names,
)
from tests.stock_tvm import run_on_cpu

nn = relax.op.nn

COUNTS = {
    "test_conv2d_offload": 6,
    "test_conv2d_transpose": 4,
    "test_batchnorm": 4,
    "test_binary_ops": 12,
    "test_unary_ops": 4,
    "test_max_pool": 3,
    "test_avg_pool": 3,
    "test_reshape": 3,
    "test_global_avg_pool": 4,
    "test_global_max_pool": 4,
    "test_dequant_matmul": 10,
    "test_dequant_vec_matmul": 11,
}
"""Test of TVM's -> how many parameter sets it has, all in float32 but the last two."""

_TOLERANCE = 1e-3
"""What TVM's tests allow."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One parameter set.

    `differs` says why our own partition makes another graph of it.  `runs` is False where TVM's
    test looks at the graph alone, and the numbers would take long.
    """

    test: str
    case: Case
    differs: str = ""
    runs: bool = True

    @property
    def id(self) -> str:
        """Test and parameters."""
        return f"{self.test}[{self.case.name}]"


def _trial(test: str, name: str, *arguments: Any, **attrs: Any) -> Trial:
    return Trial(test=test, case=one(name, *arguments, **attrs))


def _convolution(
    kernel: tuple[int, int], padding: int, outs: int, data: tuple[int, int, int], how: str
) -> Trial:
    """`how` names what goes with it: bias, norm, relu, pad."""

    def make(emit: Any, x: Any) -> Any:
        if "pad" in how:
            x = emit(nn.pad(x, [0, 0, 0, 0, *[padding] * 4]))
        weight, inner = constant(random(outs, data[0], *kernel)), 0 if "pad" in how else padding
        value = emit(nn.conv2d(x, weight, padding=(inner,) * 4, out_dtype="float32"))
        if "bias" in how:
            value = emit(relax.op.add(value, constant(random(1, outs, 1, 1))))
        if "norm" in how:
            vectors = [constant(np.abs(random(outs, seed=s)) + 0.1) for s in range(4)]
            item = nn.batch_norm(value, *vectors, axis=1, epsilon=1e-5, training=False)
            value = emit(relax.TupleGetItem(emit(item), 0))
        return nn.relu(value) if "relu" in how else value

    plane = (d + 2 * padding - k + 1 for d, k in zip(data[1:], kernel, strict=True))
    # A batch norm is folded: its offset stays, as a bias.
    parts = ("relu.",) * ("relu" in how) + ("bias.",) + ("pad.",) * ("pad" in how)
    active = {"activation_type": "relu"} if "relu" in how else {}
    trial = _trial(
        "test_conv2d_offload",
        f"{kernel} on {data} to {outs}: {how}",
        "conv2d",
        make,
        ((1, *data),),
        f"openclml.{''.join(parts)}nn.conv2d",
        (1, outs, *plane),
        constants=((outs, data[0], *kernel), (1, outs, 1, 1)),
        **conv_attrs(padding=[padding] * 4, out_dtype="float32", **active),
    )
    # In a compilation of ours `simplify` folds the norm before; the partition alone keeps it.
    return Trial(test=trial.test, case=trial.case, differs="bn" if "norm" in how else "")


def _transposed(data: Shape, kernel: Shape, padding: int, again: str = "") -> Trial:
    make = lambda _, x: nn.conv2d_transpose(  # noqa: E731
        x, constant(random(*kernel)), (2, 2), (padding,) * 4, kernel_layout="OIHW"
    )
    plane = ((d - 1) * 2 - 2 * padding + 4 for d in data[2:])
    case = one(
        f"{data} by {kernel}{again}",
        "conv2d_transpose",
        make,
        (data,),
        "openclml.nn.conv2d_transpose",
        (1, kernel[0], *plane),
        constants=(kernel,),
        **conv_attrs(padding=[padding] * 4, strides=[2, 2], output_padding=[0, 0]),
    )
    return Trial(test="test_conv2d_transpose", case=case, runs=False)


def _batch_norm(shape: Shape, again: str = "") -> Trial:
    def make(emit: Any, x: Any) -> Any:
        vectors = [constant(np.abs(random(shape[1], seed=s)) + 0.1) for s in range(4)]
        norm = emit(nn.batch_norm(x, *vectors, axis=1, epsilon=3e-4))
        return relax.TupleGetItem(norm, 0)

    name, constants = "openclml.nn.batch_norm", ((shape[1],),) * 4
    arguments = (f"{shape}{again}", "batch_norm", make, (shape,), name)
    case = one(*arguments, constants=constants, **norm_attrs(3e-4, training=1))
    # `training` is the default of Relax, and means the batch's own statistics: TVM offloads it as
    # if it did not, we do not.
    return Trial(test="test_batchnorm", case=case, differs="in training", runs=False)


def _binary(name: str, shape: Shape) -> Trial:
    make = lambda _, x, y: getattr(relax.op, name)(x, y)  # noqa: E731
    row = "divide" if name == "divide" else "binary"
    kernel = f"openclml.relax.{name}"
    return _trial("test_binary_ops", f"{name} {shape}", row, make, (shape, shape), kernel)


def _relu(shape: Shape) -> Trial:
    make, facts = lambda _, x: nn.relu(x), {"activation_type": "relu"}
    name = "openclml.relax.nn.relu"
    return _trial("test_unary_ops", f"relu {shape}", "relu", make, (shape,), name, **facts)


def _pool(kind: str, shape: Shape, stride: int) -> Trial:
    make = lambda _, x: getattr(nn, f"{kind}_pool2d")(x, (3, 3), (stride,) * 2)  # noqa: E731
    out = (*shape[:2], *((d - 3) // stride + 1 for d in shape[2:]))
    row, attrs = f"{kind}_pool2d", pool_attrs(strides=[stride, stride])
    kernel = f"openclml.nn.{row}"
    return _trial(f"test_{kind}_pool", str(shape), row, make, (shape,), kernel, out, **attrs)


def _reshape(shape: Shape, wanted: Shape) -> Trial:
    out = tuple(math.prod(shape) // -math.prod(wanted) if d < 0 else d for d in wanted)
    make = lambda _, x: relax.op.reshape(x, wanted)  # noqa: E731
    name, kernel = f"{shape} to {wanted}", "openclml.reshape"
    return _trial("test_reshape", name, "reshape", make, (shape,), kernel, out)


def _global_avg(shape: Shape, keep: bool) -> Trial:
    # TVM skips these: the document beside them is that of another test.
    make = lambda _, x: relax.op.mean(x, [2, 3], keepdims=keep)  # noqa: E731
    out = (*shape[:2], 1, 1) if keep else shape[:2]
    row, facts = "global_avg_pool2d", {"axis": [2, 3], "keepdims": int(keep)}
    kernel = f"openclml.nn.{row}"
    return _trial("test_global_avg_pool", str(shape), row, make, (shape,), kernel, out, **facts)


def _global_max(shape: Shape) -> Trial:
    # The window is the whole plane; what the test calls keepdims, it does not use.
    make = lambda _, x: nn.max_pool2d(x, shape[2:])  # noqa: E731
    attrs = pool_attrs(strides=[1, 1], pool_size=list(shape[2:]))
    kernel, out = "openclml.nn.max_pool2d", (*shape[:2], 1, 1)
    arguments = (str(shape), "max_pool2d", make, (shape,), kernel, out)
    return _trial("test_global_max_pool", *arguments, **attrs)


_POOLED = (((1, 64, 147, 147), 2), ((1, 256, 17, 17), 1), ((1, 1024, 14, 14), 1))
_REDUCED = ((1, 64, 147, 147), (1, 256, 17, 17), (1, 1024, 14, 14), (1, 32, 256, 256))
_WIDE, _NARROW = (1, 64, 200, 200), (64, 64, 4, 4)
_BINARY = ("add", "subtract", "multiply", "divide", "minimum", "maximum")

TRIALS = (
    _convolution((3, 3), 1, 64, (3, 224, 224), "norm pad"),
    _convolution((3, 3), 1, 64, (3, 224, 224), "norm"),
    _convolution((3, 3), 0, 512, (256, 14, 14), "bias relu"),
    _convolution((1, 1), 0, 1024, (512, 7, 7), "bias relu"),
    _convolution((1, 3), 0, 64, (64, 7, 7), "bias relu"),
    _convolution((3, 1), 0, 64, (64, 7, 7), "norm relu pad"),
    _transposed((1, 256, 100, 100), (64, 256, 4, 4), 0),
    _transposed(_WIDE, _NARROW, 1),
    _transposed(_WIDE, _NARROW, 1, " again"),
    _transposed((1, 64, 400, 400), (16, 64, 4, 4), 1),
    *map(_batch_norm, ((1, 64, 14, 14), (1, 14, 256, 256), (1, 256, 1, 1))),
    _batch_norm((1, 14, 256, 256), " again"),
    *(_binary(name, shape) for name in _BINARY for shape in ((1, 64, 14, 14), (1, 256))),
    *map(_relu, ((1, 64, 14, 14), (1, 256, 1, 1), (1, 14, 256, 256), (1, 14, 14, 256))),
    *(_pool(kind, *how) for kind in ("max", "avg") for how in _POOLED),
    _reshape((1, 3, 32, 32), (1, 4, -1, 32)),
    _reshape((1, 4, 8, 32), (1, 4, -1, 16)),
    _reshape((1, 64, 3, 3), (1, 32, 3, -1)),
    *map(_global_avg, _REDUCED, (True, False, True, False)),
    *map(_global_max, _REDUCED),
)
_ROWS = ((4096, 11008), (2048, 32768), (4096, 4096), (4096, 22016), (16384, 2048))
_ROWS += ((2048, 2560), (3072, 9216), (14336, 4096), (1536, 17920), (8960, 1536))
_VECTORS = (*_ROWS[:7], (4096, 28672), *_ROWS[7:])


def test_every_parameter_set_is_here():
    assert len({trial.id for trial in TRIALS}) == len(TRIALS)
    found = Counter(trial.test for trial in TRIALS)
    found.update({"test_dequant_matmul": len(_ROWS), "test_dequant_vec_matmul": len(_VECTORS)})
    assert found == COUNTS


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.id)
def test_graph(trial: Trial):
    expected = expected_nodes(trial.case, "float32")
    assert offloaded_by_tvm(trial.case.module()) == expected
    if not trial.differs:
        assert without_names(only_document(trial.case.module())) == expected
        return
    matches = matches_of(trial.case.module())
    if trial.differs == "in training":
        assert [trial.differs in refusal.reason for refusal in matches.refusals] == [True]
    else:
        (found,) = matches.found
        assert trial.differs in found.operators[0].name and len(found.operators[0].inputs) == 6


@pytest.mark.parametrize("trial", [t for t in TRIALS if t.runs], ids=lambda trial: trial.id)
def test_numbers(trial: Trial, device: Any, emulate: Emulate):
    emulate()
    inputs = [np.abs(random(*s, seed=i)) + 0.01 for i, s in enumerate(trial.case.inputs)]
    (value,) = by_emulator(trial.case.module(), device, inputs, dtype="float32")
    (expected,) = run_on_cpu(trial.case.module(), inputs)
    assert np.allclose(value, expected, rtol=_TOLERANCE, atol=_TOLERANCE)


# Products by weights of 4 bits, of interface 5 alone: by TVM's pass for language models.


def _dequantized(k: int, n: Any, rows: Any) -> tvm.IRModule:
    """x [1, rows, k] times what a function with "dequantize" in its name makes of two tensors."""
    builder = relax.BlockBuilder()
    shapes = {"x": ((1, rows, k), "float16"), "w": ((k // 8, n), "uint32")}
    shapes["s"] = ((k // 32, n), "float16")
    x, packed, scales = (relax.Var(name, relax.TensorType(*of)) for name, of in shapes.items())
    weights = relax.TensorType((k, n), "float16")
    # What it computes nobody looks at: it goes into the composite by its name.
    stand_in = tvm.tirx.PrimFunc([], tvm.tirx.Evaluate(0)).with_attr("global_symbol", "dequantize")
    name = builder.add_func(stand_in, "dequantize")
    with builder.function("main", [x, packed, scales]):
        with builder.dataflow():
            call = relax.call_tir(name, (packed, scales), out_ty=weights)
            product = relax.op.matmul(x, builder.emit(call), out_dtype="float16")
            value = builder.emit_output(product)
        builder.emit_func_output(value)
    return builder.get()


def _check_dequantized(k: int, n: Any, rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    composites.register()
    monkeypatch.setattr(tvm_clml, "clml_sdk_version", lambda: 5)
    target = tvm.target.Target("qcom/adreno-opencl-clml")
    made = tvm_clml.OpenCLMLOffLoadForLLM(target)(_dequantized(k, n, rows))
    (runtime,) = made.attrs["external_mods"]
    assert list(runtime["get_const_vars"]()) == []
    graph = json.loads(runtime.inspect_source())
    columns, known = (-1 if isinstance(d, tvm.tirx.Var) else d for d in (n, rows))
    inputs = [("uint32", [k // 8, columns]), ("float16", [k // 32, columns])]
    inputs.append(("float16", [1, known, k]))
    leaves = [
        {"op": "input", "name": "", "attrs": {"shape": [shape], "dtype": [dtype]}}
        for dtype, shape in inputs
    ]
    attrs = {"shape": [[1, known, columns]], "dtype": ["float16"], "out_dtype": "float16"}
    kernel = {
        "op": "kernel",
        "name": "openclml.dequant_matmul",
        "inputs": [[0, 0, 0], [1, 0, 0], [2, 0, 0]],
        "attrs": {**attrs, "num_inputs": 3, "num_outputs": 1},
    }
    assert without_names(graph) == [*leaves, kernel]


@pytest.mark.parametrize(("k", "n"), _ROWS)
def test_dequant_matmul(k: int, n: int, monkeypatch: pytest.MonkeyPatch):
    _check_dequantized(k, n, tvm.tirx.Var("seq_len", "int64"), monkeypatch)


@pytest.mark.parametrize(("k", "n"), _VECTORS)
def test_dequant_vec_matmul(k: int, n: int, monkeypatch: pytest.MonkeyPatch):
    _check_dequantized(k, tvm.tirx.Var("vocab_size", "int64"), 1, monkeypatch)
