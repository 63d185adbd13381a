"""Activations of int16, and inputs and outputs that are not int8, against LiteRT."""

import json
import re

import numpy as np
import pytest

from adrenoc.base.errors import UnsupportedOperatorError
from adrenoc.cli.main import main
from adrenoc.firmware.mcu.fixed_point import requantise
from adrenoc.firmware.mcu.network import Border
from adrenoc.firmware.mcu.operators import Requantise
from adrenoc.firmware.mcu.plain_words import _real_factor
from tests.mcu import networks
from tests.mcu.judge import (
    compile_firmware,
    evaluate_and_compare,
    needs_emulator,
    run_and_compare,
    run_firmware_of,
)
from tests.mcu.maker import Maker, Value
from tests.mcu.test_firmware_operators import batch_forms, depthwise_forms, filter_forms, move_forms
from tests.tflite.build import T

_ONE = 1 / 32768


def _dense(make: Maker) -> list[Value]:
    row = make.input(1, 40)
    return [
        make.dense(row, 12),
        make.dense(make.input(3, 24), 5, relu="RELU"),
        make.dense(make.input(1, 7), 9, bias=make.bias_dtype == "int64"),
        make.dense(make.input(1, 1100), 3),
    ]


def _pairs(make: Maker) -> list[Value]:
    a, b = make.input(1, 4, 6, 8), make.input(1, 4, 6, 8)
    gate, row = make.input(1, 1, 1, 8), make.constant(8)
    full = make.constant(1, 4, 6, 8)
    made = []
    for kind, options in (("MUL", "MulOptions"), ("SUB", "SubOptions"), ("ADD", "AddOptions")):
        made += [
            make.binary(kind, a, b, options),
            make.binary(kind, a, gate, options, "RELU"),
            make.binary(kind, gate, a, options),
            make.binary(kind, a, row, options, "RELU6"),
            make.binary(kind, full, b, options),
        ]
    return [*made, make.add(a, b, relu="RELU"), make.add(a, a)]


def _others(make: Maker) -> list[Value]:
    a = make.input(1, 4, 5, 6)
    return [
        make.pool(a, "AVERAGE_POOL_2D", (4, 5)),
        make.pool(a, "AVERAGE_POOL_2D", (3, 3), strides=(1, 1), padding="SAME"),
        make.pool(a, "MAX_POOL_2D", (2, 2)),
        make.pool(a, "MAX_POOL_2D", (3, 2), strides=(2, 1), padding="SAME", relu="RELU"),
        make.reshape(a, 1, 120),
        make.reshape(make.add(a, a), 1, 120),
        make.softmax(make.input(1, 40, scale=1e-3)),
        make.softmax(make.input(5, 10, scale=2e-4), beta=0.5),
        make.softmax(make.input(2, 1, scale=3e-5)),
        make.softmax(make.input(2, 300, scale=1e-6)),
    ]


def _curves(make: Maker) -> list[Value]:
    made = []
    for scale in (1e-5, 1e-4, 2.0**-12, 2.0**-11, 3e-4, 1e-3, 0.06, 0.9):
        x = make.input(1, 2, 8, 64, scale=scale)
        made += [make.unary(kind, x, scale=_ONE, zero=0) for kind in ("LOGISTIC", "TANH")]
    x = make.input(1, 2, 8, 16)
    made += [make.unary(kind, x) for kind in ("RELU", "RELU6", "QUANTIZE")]
    made.append(make.unary("LEAKY_RELU", x, options="LeakyReluOptions", alpha=0.1))
    make.dtype = "int8"
    small = make.input(1, 2, 8, 16)
    made.append(make.unary("QUANTIZE", x))
    make.dtype = "int16"
    return [*made, make.unary("QUANTIZE", small)]


FORMS = [filter_forms, depthwise_forms, _dense, _pairs, _others, _curves, move_forms, batch_forms]


@pytest.mark.parametrize("forms", FORMS)
def test_evaluation_is_the_reference(forms):
    for seed in range(4):
        make = Maker(seed=seed, dtype="int16")
        evaluate_and_compare(make.finish(*forms(make)))


@pytest.mark.parametrize("forms", [filter_forms, _dense])
def test_biases_of_32_bits_are_the_reference(forms):
    for seed in range(3):
        make = Maker(seed=seed, dtype="int16", bias_dtype="int32")
        evaluate_and_compare(make.finish(*forms(make)))


@needs_emulator
@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m4", "cortex-m55"])
@pytest.mark.parametrize("forms", FORMS)
def test_code_is_the_reference(forms, core, tmp_path):
    make = Maker(seed=10, dtype="int16")
    run_and_compare(make.finish(*forms(make)), tmp_path / "m", core=core, seed=1)


def test_code_calls_its_borders_what_they_are(tmp_path):
    model, out = tmp_path / "m.tflite", tmp_path / "m"
    model.write_bytes(networks.audio())
    assert compile_firmware(model, out) == 0
    header = (out / "model.h").read_text()
    assert "void model_run(const int16_t *input, int16_t *output, void *arena);" in header
    assert "MODEL_INPUT_BYTES 432" in header
    assert "MODEL_OUTPUT_BYTES 22" in header


def test_what_cannot_go_is_named(tmp_path, capsys):
    model = tmp_path / "m.tflite"
    model.write_bytes(networks.audio())
    code = main(["firmware", "compile", str(model), "--device", "cpu:arm64"])
    assert code == UnsupportedOperatorError.exit_code
    assert "activations of int16" in capsys.readouterr().err
    make = Maker(dtype="int16")
    x = make.input(1, 4, 4, 4)
    model.write_bytes(make.finish(make.unary("HARD_SWISH", x)))
    assert compile_firmware(model, tmp_path / "o") == UnsupportedOperatorError.exit_code
    assert re.search("HARD_SWISH .*no kernel of int16 yet", capsys.readouterr().err)


def test_real_factors_are_those_of_float64():
    """Sums about every half, of factors that float64 has exactly and of others."""
    random = np.random.default_rng(0)
    for real in (2.0**-14, 3 * 2.0**-17, *random.uniform(1e-7, 1e-2, 6)):
        mantissa, shift, nudge = _real_factor(float(real))
        halves = np.arange(1, 32768, 97) - 0.5
        sums = (np.floor(halves / real)[:, None] + np.arange(-1, 3)).astype(np.int64).reshape(-1)
        rule = Requantise(zero=0, low=-32768, high=32767, reals=np.array([real]), wide=True)
        want = requantise(sums, rule)
        half = 1 << (shift - 33)
        got = [((int(s) * mantissa >> 32) + half + nudge) >> (shift - 32) for s in sums]
        assert (np.minimum(got, 32767) == want).all()


@needs_emulator
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55"])
def test_long_sums_have_64_bits(core, tmp_path):
    """More products than 32 bits hold, each at its end."""
    make = Maker(seed=4, dtype="int16", least_weight=-128)
    x = make.input(1, 3, 3, 700)
    made = [make.conv(x, 3), make.conv(x, 2, (3, 3)), make.dense(make.input(1, 1100), 3)]
    run_and_compare(make.finish(*made), tmp_path / "m", core=core, seed=2)


def _outer(inner: Value, dtype: str) -> T:
    if dtype == "float32":
        return T(shape=inner.shape)
    return T(dtype=dtype, shape=inner.shape, scales=[inner.scale], zeros=[inner.zero + 128])


def _converted(dtype: str) -> bytes:
    """A model that converts its input, and its output back."""
    make = Maker(seed=3)
    like = make.input(1, 6, 5, 4)
    make.graph.inputs.clear()
    outer = make.graph.add(_outer(like, dtype))
    make.graph.inputs.append(outer)
    inner = T(dtype="int8", shape=like.shape, scales=[like.scale], zeros=[like.zero])
    (index,) = make.graph.op("QUANTIZE", [outer], [inner])
    x = Value(index=index, shape=like.shape, scale=like.scale, zero=like.zero)
    y = make.conv(x, 8, (3, 3), relu="RELU")
    kind = "DEQUANTIZE" if dtype == "float32" else "QUANTIZE"
    make.graph.outputs += make.graph.op(kind, [y.index], [_outer(y, dtype)])
    return make.model.write()


@needs_emulator
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_conversions_at_the_borders_are_left_to_the_firmware(dtype, tmp_path, capsys):
    model, out = tmp_path / "m.tflite", tmp_path / "fw"
    model.write_bytes(_converted(dtype))
    assert compile_firmware(model, out, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert [border["dtype"] for border in said["borders"]] == [dtype, dtype]
    assert sum(dtype in decision["reason"] for decision in said["decisions"]) == 2
    assert run_firmware_of(model, out, "--json") == 0
    run = json.loads(capsys.readouterr().out)
    assert run["passed"] is True
    assert len(run["layers"]) == 1


def test_a_constant_that_two_operators_repeat_differently():
    make = Maker(seed=1)
    one = make.constant(1)
    parts = [make.input(1, 1, 1, 12), make.input(1, 2, 2, 20)]
    evaluate_and_compare(
        make.finish(*(make.binary("MUL", part, one, "MulOptions") for part in parts))
    )


def test_shapes_that_are_computed_for_an_open_batch():
    make = Maker(seed=1)
    x = make.input(1, 3, 2, 5)
    whole = {"dtype": "int32"}
    extents, kind = [T(shape=(4,), **whole)], {"outType": 2}
    (shape,) = make.graph.op("SHAPE", [x.index], extents, "ShapeOptions", kind)
    first, one = (
        make.graph.add(T(data=np.array([v], np.int32), is_constant=True, **whole)) for v in (0, 1)
    )
    operands, shrunk = [shape, first, one, one], {"shrinkAxisMask": 1}
    number = [T(shape=(), **whole)]
    (batch,) = make.graph.op("STRIDED_SLICE", operands, number, "StridedSliceOptions", shrunk)
    flat = make.graph.add(T(data=np.array(30, np.int32), is_constant=True, **whole))
    packed = {"valuesCount": 2, "axis": 0}
    (to,) = make.graph.op("PACK", [batch, flat], [T(shape=(2,), **whole)], "PackOptions", packed)
    row = T(dtype="int8", shape=(1, 30), scales=[x.scale], zeros=[x.zero])
    (index,) = make.graph.op("RESHAPE", [x.index, to], [row])
    evaluate_and_compare(
        make.finish(make.dense(Value(index=index, shape=(1, 30), scale=x.scale, zero=x.zero), 4))
    )


def test_options_that_a_file_lacks_are_named(tmp_path, capsys):
    make = Maker()
    path = tmp_path / "m.tflite"
    path.write_bytes(make.finish(make.unary("LEAKY_RELU", make.input(1, 4))))
    code = main(["firmware", "check", str(path), "--device", "cortex-m4"])
    assert code == UnsupportedOperatorError.exit_code
    assert "no option 'Alpha'" in capsys.readouterr().err


def test_tile_repeats():
    make = Maker(seed=1)
    x = make.input(1, 3, 2, 5)
    evaluate_and_compare(make.finish(make.moved("TILE", x, [[1, 2, 1, 3]], (1, 6, 2, 15))))


def test_numbers_go_through_a_border_unchanged():
    stored = np.arange(-128, 128).astype(np.int8)
    for dtype in ("float32", "uint8", "int8"):
        border = Border(scale=float(np.float32(0.0371)), zero=-7, dtype=dtype)
        assert (border.to_firmware(border.to_model(stored)) == stored).all()
