"""Models whose inputs and outputs are not int8: firmware has them so."""

import json

import numpy as np
import pytest

from adrenoc.base.errors import UnsupportedOperatorError
from adrenoc.cli.main import main
from adrenoc.firmware.mcu.network import Border
from tests.mcu.judge import evaluate_and_compare, needs_emulator
from tests.mcu.maker import Maker, Value
from tests.tflite.build import T


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
    assert (
        main(["firmware", "compile", str(model), "--device", "cortex-m4", "-o", str(out), "--json"])
        == 0
    )
    said = json.loads(capsys.readouterr().out)
    assert [border["dtype"] for border in said["borders"]] == [dtype, dtype]
    assert sum(dtype in decision["reason"] for decision in said["decisions"]) == 2
    assert main(["firmware", "run", str(out), "--check", str(model), "--json"]) == 0
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
    (shape,) = make.graph.op(
        "SHAPE", [x.index], [T(shape=(4,), **whole)], "ShapeOptions", {"outType": 2}
    )
    ends = [
        make.graph.add(T(data=np.array([v], np.int32), is_constant=True, **whole)) for v in (0, 1)
    ]
    (batch,) = make.graph.op(
        "STRIDED_SLICE",
        [shape, ends[0], ends[1], ends[1]],
        [T(shape=(), **whole)],
        "StridedSliceOptions",
        {"shrinkAxisMask": 1},
    )
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
