"""Quantised networks: integers within a quantum of the reference's, and quanta that are known."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from adrenoc.base.reporter import SilentReporter
from adrenoc.bundle.bundle import Bundle
from adrenoc.check.generation import check_layers
from adrenoc.check.reference import run_reference
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.device.run import run_bundle
from adrenoc.importers.onnx.session import open_session
from adrenoc.ir.options import resolve_options
from adrenoc.target.target import load_target
from tests.commands import compile_model
from tests.host.run_op import CHECKED, Ops, execute, relative_error
from tests.ir.planning import run_until
from tests.models import graph, write
from tests.qoperator import QNet, with_conversions
from tests.tflite.build import TYPES, ModelBuilder, T, schema
from tests.tflite.cases import qb, qt, qw, w


def network(seed: int = 0, dtype: str = "int8") -> tuple[bytes, np.ndarray, np.ndarray]:
    """Convolutions, a sum, a pool, a product and a softmax; with what LiteRT makes of an image."""
    r = np.random.default_rng(seed)
    made = ModelBuilder()
    graph = made.graph()
    low, high, zero = (-128, 128, 3) if dtype == "int8" else (-32768, 32768, 0)
    unit = 0.02 if dtype == "int8" else 1e-4
    bias = "int32" if dtype == "int8" else "int64"
    image = r.integers(low, high, (1, 13, 11, 3)).astype(dtype)
    x = graph.add(T(dtype=dtype, data=image, scales=[unit], zeros=[zero]))

    def biased(channels: int, weight: T, scale: float) -> int:
        bare = qb(channels, bias, 300)(r)
        scales = np.float32(scale) * np.asarray(weight.scales, np.float32)
        return graph.add(
            T(
                dtype=bias,
                data=bare.data,
                is_constant=True,
                scales=list(scales),
                zeros=[0] * len(scales),
            )
        )

    conv = {"dilationHFactor": 1, "dilationWFactor": 1, "fusedActivationFunction": 1}
    weight = qw(10, 3, 3, 3, axis=0)(r)
    inputs = [x, graph.add(weight), biased(10, weight, unit)]
    values = {**conv, "strideH": 2, "strideW": 2}
    (y,) = graph.op("CONV_2D", inputs, [qt(dtype, unit, -zero)], "Conv2DOptions", values)
    weight = qw(1, 3, 3, 10, axis=3, scale=0.02)(r)
    inputs = [y, graph.add(weight), biased(10, weight, unit)]
    values = {**conv, "strideH": 1, "strideW": 1, "depthMultiplier": 1}
    out = qt(dtype, unit, 2 * zero)
    (z,) = graph.op("DEPTHWISE_CONV_2D", inputs, [out], "DepthwiseConv2DOptions", values)
    (s,) = graph.op("ADD", [y, z], [qt(dtype, 1.5 * unit, zero)], "AddOptions")
    if dtype == "int16":
        graph.outputs = [s]
    else:
        axes = graph.add(T(dtype="int32", data=np.array([1, 2], np.int32), is_constant=True))
        (m,) = graph.op("MEAN", [s, axes], [qt(dtype, 0.01, zero)], "ReducerOptions")
        weight = qw(7, 10, scale=0.05)(r)
        inputs = [m, graph.add(weight), biased(7, weight, 0.01)]
        (t,) = graph.op("FULLY_CONNECTED", inputs, [qt(scale=0.05)], "FullyConnectedOptions")
        out = qt(scale=1 / 256, zero=-128)
        graph.outputs = graph.op("SOFTMAX", [t], [out], "SoftmaxOptions", {"beta": 1.0})
    content, (expected,) = made.finish()
    return content, image, expected


def run(path: Path, feeds: list[np.ndarray], preset: str, device) -> tuple[Any, State]:
    """The outputs of a model file on the software device."""
    state = run_until(None, path, "host", preset=preset, **CHECKED)
    return execute(state, feeds, device), state


@pytest.mark.parametrize(
    ("dtype", "preset"), [("int8", "mixed"), ("int8", "fp16"), ("int16", "mixed")]
)
def test_tflite_network_is_within_a_quantum(device, tmp_path, dtype, preset):
    content, image, expected = network(dtype=dtype)
    path = tmp_path / "quantised.tflite"
    path.write_bytes(content)
    (seen,), state = run(path, [image], preset, device)
    assert seen.dtype == expected.dtype
    assert np.ptp(expected.astype(int)) > 8  # else a constant would pass
    # Sums of 16-bit products are beyond 2^24, which rounds them: each operator may add a quantum.
    allowed = 0 if dtype == "int8" else 2
    assert np.abs(seen.astype(int) - expected.astype(int)).max() <= allowed
    stored = {p.spec.dtype for p in state.program.params.values() if p.value.ndim == 4}
    if dtype == "int8":
        assert "float16" in stored  # weights of eight bits are exact in half
    assert any("rounded to integers" in d.reason for d in state.log)


WORD_PRODUCTS = {
    "CONV_2D": ((1, 24, 24, 8), qw(16, 3, 3, 8, axis=0), "Conv2DOptions"),
    "DEPTHWISE_CONV_2D": ((1, 24, 24, 16), qw(1, 3, 3, 16, axis=3), "DepthwiseConv2DOptions"),
    "TRANSPOSE_CONV": ((1, 12, 12, 8), qw(16, 2, 2, 8, axis=0), "TransposeConvOptions"),
    "FULLY_CONNECTED": ((90, 24), qw(60, 24, scale=0.0077), "FullyConnectedOptions"),
}


@pytest.mark.parametrize(
    ("kind", "bias"),
    [
        *((kind, "int64") for kind in WORD_PRODUCTS),
        *((kind, "int32") for kind in WORD_PRODUCTS if kind != "DEPTHWISE_CONV_2D"),
        *((kind, "") for kind in WORD_PRODUCTS if kind != "CONV_2D"),
    ],  # LiteRT takes no other
)
def test_words_are_scaled_by_the_multipliers_of_litert(device, tmp_path, kind, bias):
    """Fifteen bits beside sums of 64 bits: a fiftieth of all results is a quantum off without."""
    shape, weights, options = WORD_PRODUCTS[kind]
    r = np.random.default_rng(5)
    made = ModelBuilder()
    graph = made.graph()
    image = r.integers(-32768, 32768, shape).astype(np.int16)
    x = graph.add(T(dtype="int16", data=image, scales=[1e-4], zeros=[0]))
    weight = weights(r)
    inputs = [x, graph.add(weight)]
    if kind == "TRANSPOSE_CONV":
        size = graph.add(T(dtype="int32", data=np.int32([1, 24, 24, 16]), is_constant=True))
        inputs = [size, inputs[1], x]
    if bias:
        scales = list(np.float32(1e-4) * np.asarray(weight.scales, np.float32))
        added = r.integers(-(10**6), 10**6, weight.data.shape[weight.axis]).astype(bias)
        zeros = [0] * len(scales)
        inputs += [
            graph.add(T(dtype=bias, data=added, is_constant=True, scales=scales, zeros=zeros))
        ]
    steps = 2 if kind == "TRANSPOSE_CONV" else 1
    values = {"strideH": steps, "strideW": steps, "depthMultiplier": 1}
    values |= {"dilationHFactor": 1, "dilationWFactor": 1}
    values |= {"quantizedBiasType": TYPES[bias]} if bias else {}
    known = {n: v for n, v in values.items() if hasattr(getattr(schema, f"{options}T")(), n)}
    graph.outputs = graph.op(kind, inputs, [qt("int16", 2.3e-4)], options, known)
    content, (expected,) = made.finish()
    path = tmp_path / "words.tflite"
    path.write_bytes(content)
    (seen,), _ = run(path, [image], "fp32", device)
    off = np.abs(seen.astype(int) - expected.astype(int))
    assert np.ptp(expected.astype(int)) > 10000
    assert off.max() <= 1
    assert (off != 0).mean() < 4e-3  # of sums beyond 2^24, which floats round


def test_float_data_keep_their_digits_beside_weights_of_8_bits(device, tmp_path):
    """LiteRT rounds them to 8 bits: the reference is what it computes of the weights as floats."""
    r = np.random.default_rng(0)
    made = ModelBuilder()
    graph = made.graph()
    x = graph.add(T(data=r.standard_normal((1, 9, 8, 5)).astype(np.float32)))
    conv = {"dilationHFactor": 1, "dilationWFactor": 1, "strideH": 1, "strideW": 1}
    weight, bias = graph.add(qw(6, 3, 3, 5, axis=0)(r)), graph.add(w(6)(r))
    (y,) = graph.op("CONV_2D", [x, weight, bias], [T()], "Conv2DOptions", conv)
    weight = graph.add(qw(1, 3, 3, 6, axis=3)(r))
    values = {**conv, "depthMultiplier": 1}
    (z,) = graph.op("DEPTHWISE_CONV_2D", [y, weight, bias], [T()], "DepthwiseConv2DOptions", values)
    weight = graph.add(qw(7, 9 * 8 * 6)(r))
    graph.outputs = graph.op("FULLY_CONNECTED", [z, weight], [T()], "FullyConnectedOptions")
    content, (litert,) = made.finish()
    path = tmp_path / "dynamic_range.tflite"
    path.write_bytes(content)
    image = graph.feeds[0]
    (expected,) = run_reference(path, {"t0": image}).values()
    assert relative_error(litert, expected) > 1e-3
    (seen,), state = run(path, [image], "fp32", device)
    assert relative_error(seen, expected) <= 1e-5
    assert any(d.taken == "weights from 8 bits as floats" for d in state.log)


def residual_network(dtype: str) -> QNet:
    """Wide 3x3 convolutions with a residual sum and a fully connected layer, in integers."""
    net = QNet((1, 16, 14, 14), dtype=dtype)
    first = net.conv(64, kernel=3)
    scale, zero = net.scale, net.zero
    net.conv(64, kernel=3, per_channel=True)
    net.conv(64, kernel=3)
    net.add(first, scale, zero)
    net.conv(24, kernel=3, stride=2)
    net.gemm(10)
    return net


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_onnx_integers_are_those_of_onnxruntime(device, tmp_path, dtype):
    net = residual_network(dtype)
    path = tmp_path / "network.onnx"
    onnx.save(net.model(), path)
    image = net.image()
    (expected,) = open_session(path).run(None, {"x": image})
    assert np.ptp(expected.astype(int)) > 40
    (seen,), _ = run(path, [image], "fp32", device)
    # Scales of seven digits, or sums that are not of integers, move some of them.
    np.testing.assert_array_equal(seen, expected)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_operators_between_conversions_are_of_integers(device, tmp_path, dtype):
    """As onnxruntime computes them on phones: of signed bytes it leaves floats elsewhere."""
    net = residual_network(dtype)
    path = tmp_path / "qdq.onnx"
    onnx.save(with_conversions(net.model()), path)
    image = net.image()
    (expected,) = run_reference(path, {"x": image}).values()
    (seen,), state = run(path, [image], "fp32", device)
    np.testing.assert_array_equal(seen, expected)
    taken = {d.taken.partition(" between")[0] for d in state.log if "on the integers" in d.taken}
    assert taken == {"4 Conv", "1 Add", "1 Flatten", "1 Gemm"}


def _check_layers(net: QNet, model: onnx.ModelProto, folder: Path, off: dict[str, int]):
    """The check of each layer, of which one element is so many quanta `off`."""
    path = folder / "network.onnx"
    onnx.save(model, path)
    made = compile_model(path, folder / "network.adrenoc", "--no-cache")
    inputs = {"x": net.image()}

    def run_off(bundle: Bundle) -> dict[str, np.ndarray]:
        outputs = {n: np.array(v) for n, v in run_bundle(bundle, inputs=inputs).outputs.items()}
        for name, quanta in off.items():
            outputs[name].flat[outputs[name].argmin()] += quanta
        return outputs

    return check_layers(made, path, inputs, run=run_off, tolerance=1e-4, reporter=SilentReporter())


def test_layers_of_parts_are_left_out_of_checks(device, tmp_path):
    """What an operator of onnxruntime's own is made of has no reference."""
    net = residual_network("uint8")
    checked = _check_layers(net, net.model(), tmp_path, {})
    assert checked.first_bad is None
    assert [tensor.name for tensor in checked.tensors][-1] == net.tensor


@pytest.mark.parametrize("quanta", [1, 3])
def test_layers_are_checked_to_within_a_quantum(device, tmp_path, quanta):
    net = QNet((1, 8, 9, 7))
    made = net.conv(12, kernel=3)
    bad = _check_layers(net, net.model(), tmp_path, {made: quanta}).first_bad
    assert (bad and bad.name) == (made if quanta > 1 else None)


@pytest.mark.parametrize("op", ("Mul", "Add"))
def test_sums_and_products_of_bytes_are_onnxruntimes_own(device, op):
    """One factor and the zero point, then one rounding: three scales give other quanta in 1 %."""
    ops = Ops(opset=17)
    shape = (1, 8, 64, 64)
    values = np.random.default_rng(3).integers(0, 256, (2, *shape)).astype(np.uint8)
    # Some whole number of products, or of quanta, is one of the result: many lie half way.
    for first, second, count, middle, zero in (
        (0.0625, 0.125, 64, 120, 101),
        (0.0569, 0.1138, 64, 120, 100),
        (0.04999095, 0.0114235, 100, 0, 3),
    ):
        floats = []
        for number, scale in enumerate(np.float32([first, second])):
            x = ops.whole_input(*shape, count=2, dtype=np.uint8)
            ops.given(x, values[number])
            floats.append(ops("DequantizeLinear", x, ops.const(scale), ops.const(middle, np.uint8)))
        unit = np.float32(first) * (np.float32(second) * count if op == "Mul" else 4)
        result = ops(op, *floats)
        ops.output(ops("QuantizeLinear", result, ops.const(unit), ops.const(zero, np.uint8)))
    seen = ops.run(device, "fp32")
    for name, expected in ops.reference().items():
        assert np.count_nonzero(seen[name] != expected) == 0, name


def _quantised(ops: Ops, x: str, unit: float) -> str:
    scale, zero = ops.const(unit), ops.const(128, np.uint8)
    return ops("DequantizeLinear", ops("QuantizeLinear", x, scale, zero), scale, zero)


def _convolved(ops: Ops, x: str, weight: str, unit: float) -> str:
    return _quantised(ops, ops("Conv", x, weight, pads=[1] * 4), unit)


def _weights_of_bytes(ops: Ops, channels: int) -> str:
    whole = ops.const(np.rint(ops.values(channels, channels, 3, 3) * 200), np.int8)
    return ops("DequantizeLinear", whole, ops.const(0.00113), ops.const(0, np.int8))


@pytest.mark.parametrize("preset", ["mixed", "fp16"])
def test_a_first_convolution_in_floats_moves_no_quantum(device, preset):
    """As converters leave it out: all that comes behind is exact in halves and bytes."""
    ops = Ops(seed=4)
    y = _convolved(ops, ops.input(1, 3, 24, 20), ops.weight(16, 3, 3, 3), 0.0107)
    for _ in range(3):
        y = _convolved(ops, y, _weights_of_bytes(ops, 16), 0.0123)
    ops.output(y)
    ops.check(device, preset, tolerance=1e-5)
    assert any(d.taken == "float32" and "quanta are rounded of" in d.reason for d in ops.decisions)


def test_a_norm_between_roundings_moves_no_quantum(device):
    """As converters leave it in floats: its own factors stay exact, too."""
    ops = Ops(seed=4)
    y = _quantised(ops, ops.input(1, 24, 32), 0.0107)
    y = ops("LayerNormalization", y, ops.weight(32, around=1.0), ops.weight(32), axis=-1)
    ops.output(_quantised(ops, y, 0.0293))
    ops.check(device, "mixed", tolerance=1e-5)


def test_a_network_in_floats_with_one_quantised_layer_stays_in_halves(device):
    ops = Ops(seed=4)
    y = ops.input(1, 16, 24, 20)
    for _ in range(3):
        y = ops("Relu", ops("Conv", y, ops.weight(16, 16, 3, 3), pads=[1] * 4))
    y = _convolved(ops, _quantised(ops, y, 0.01), _weights_of_bytes(ops, 16), 0.02)
    ops.output(y)
    ops.check(device, "mixed", tolerance=2e-2)
    told = [d for d in ops.decisions if "quanta are rounded of" in d.reason]
    assert [d.taken for d in told] == ["stored as the preset says"]
    assert "%" in told[0].reason


def test_sums_and_choices_beyond_32_bits(device, tmp_path):
    large = 2**40
    nodes = (
        "a = Add(x, large) total = ReduceSum <keepdims = 1>(a) up = Greater(a, large) "
        "kept = Where(up, a, zero) row = Gather <axis = 0>(a, first)"
    )
    constants = {
        "large": np.array(large, np.int64),
        "zero": np.array(0, np.int64),
        "first": np.array([1, 0], np.int64),
    }
    names = ["total", "kept", "row"]
    model = graph(nodes, {"x": (3, 5)}, names, constants, dtype=TensorProto.INT64)
    x = (np.arange(15, dtype=np.int64) - 7).reshape(3, 5)
    target = load_target("host")
    options = resolve_options(target, preset="fp32", command_line={"check_ir": True}).options
    state = State(model=write(model, tmp_path), target=target, options=options)
    state, _ = run_stages(state, reporter=SilentReporter())
    total, kept, row = execute(state, [x], device)
    a = x + large
    np.testing.assert_array_equal(total, a.sum(keepdims=True))
    np.testing.assert_array_equal(kept, np.where(a > large, a, 0))
    np.testing.assert_array_equal(row, a[[1, 0]])
