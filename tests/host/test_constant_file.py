"""Convolutions whose weights lie in the constant file, where a driver lets waves fill it.

No device at hand has the built-ins.  `tests/opencl/constant_file.cl` gives them their meaning, in a
process whose driver runs one work-group at a time; without it kernels copy to local memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_op import Ops

from adrenoc.kernels.families.conv import conv_rules
from adrenoc.kernels.families.conv.constant_conv import constant_candidates, pack_steps
from adrenoc.kernels.families.shared.conv_geometry import ConvTile
from adrenoc.kernels.families.shared.machine import TileTables
from adrenoc.target.target import load_target
from tests.opencl.implementation import LAYERS, plain_environment
from tests.opencl.layers import compile_layer

pytestmark = pytest.mark.operator

TARGET = "host:830"
WORDS = Path(__file__).parents[1] / "opencl" / "constant_file.cl"
EXPECTED = os.environ.get("CONSTANT_FILE_EXPECTED", "the driver does not take its built-ins")
"""What the runtime says became of the constant file."""
PRODUCTS = "test_products_of_tokens"
CASES: tuple[tuple[int, int, int, int, dict[str, Any]], ...] = (
    (64, 32, 9, 1, {}),
    (64, 30, 14, 3, {"pads": [1, 1, 1, 1]}),
    (64, 36, 13, 3, {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    (64, 20, 12, 3, {"dilations": [2, 2], "pads": [2, 2, 2, 2]}),
    (32, 24, 8, 5, {"pads": [2, 2, 2, 2]}),
)


@pytest.fixture
def constants_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Convolutions have no other route."""

    def candidates(work: Any, limits: Any, machine: Any) -> TileTables[ConvTile]:
        return TileTables(constant_candidates(work, limits, machine))

    monkeypatch.setattr(conv_rules, "candidates", candidates)
    conv_rules.score_tiles.cache_clear()
    yield
    conv_rules.score_tiles.cache_clear()


def _what_became(module: Any) -> Iterator[str]:
    for part in module.imports:
        if part.kind == "opencl":
            yield str(part.get_function("adrenoc.constant_file")(0))
        yield from _what_became(part)


@pytest.mark.usefixtures("constants_alone")
@pytest.mark.parametrize(("channels", "out", "side", "kernel", "attrs"), CASES)
def test_convolutions(
    device: Any, channels: int, out: int, side: int, kernel: int, attrs: dict[str, Any]
) -> None:
    ops = Ops()
    x = ops("Relu", ops.input(2, channels, side, side))
    weight, bias = ops.weight(out, channels, kernel, kernel), ops.weight(out)
    ops.output(ops("Relu", ops("Conv", x, weight, bias, **attrs)))
    ops.asked = {"compute_dtype": "float16", "winograd": False}
    ops.check(device, "fp16", target=TARGET)
    assert ops.kernels[-1] == "conv2d"
    assert [EXPECTED in said for said in _what_became(ops.module)] == [True]


@pytest.mark.usefixtures("constants_alone")
def test_products_of_tokens(device: Any) -> None:
    ops = Ops()
    x = ops("Relu", ops.input(1, 50, 96))
    ops.output(ops("Relu", ops("MatMul", x, ops.weight(96, 72))))
    ops.asked = {"compute_dtype": "float16"}
    ops.check(device, "fp16", target=TARGET)
    assert [EXPECTED in said for said in _what_became(ops.module)] == [True]


def _run_with(words: Path, expected: str, folder: Path, *chosen: str) -> None:
    layer = compile_layer("driver_words.c", folder)
    if layer is None:
        pytest.skip("no C compiler on this machine")
    plain = plain_environment(folder)
    environment = {
        **os.environ,
        **plain,
        LAYERS: ":".join([*filter(None, [plain.get(LAYERS)]), str(layer)]),
        "DRIVER_WORDS": str(words),
        "CONSTANT_FILE_EXPECTED": expected,
        # The file of all waves is one buffer: work-groups come one after the other.
        "CL_CONFIG_CPU_TBB_NUM_WORKERS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    command += [f"{__file__}::{name}" for name in chosen]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-4000:]
    assert " passed" in ended.stdout and "skipped" not in ended.stdout


@pytest.mark.skipif("DRIVER_WORDS" in os.environ, reason="it starts the others")
def test_with_the_built_ins(device: Any, tmp_path: Path) -> None:
    _run_with(WORDS, "used", tmp_path, "test_convolutions", PRODUCTS)


@pytest.mark.skipif("DRIVER_WORDS" in os.environ, reason="it starts the others")
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("to_[i_] = from_[i_]", "to_[i_] = from_[0]"),  # copies one vector to all places
        *(
            pytest.param(*words, marks=pytest.mark.nightly)
            for words in (
                ("i_ < count_; ++i_) to_[i_] = from_", "i_ < 1; ++i_) to_[i_] = from_"),
                ("(source) + (first)", "(source)"),
            )
        ),
    ],
)
def test_a_driver_that_is_wrong_does_without(
    device: Any, tmp_path: Path, right: str, wrong: str
) -> None:
    """Kernels are right all the same: the runtime's trial tells."""
    words = WORDS.read_text()
    assert words.count(right) == 1
    (tmp_path / "words.cl").write_text(words.replace(right, wrong))
    _run_with(tmp_path / "words.cl", "sums of a trial are wrong", tmp_path, PRODUCTS)


def test_packing() -> None:
    """A wave finds the vectors of each of its k-steps one after the other."""
    weight = np.arange(10 * 16 * 3 * 2, dtype=np.float16).reshape(10, 16, 3, 2)
    tile = ConvTile(pixels=1, out_blocks=2, unroll=2)
    run = pack_steps(weight, tile).view(np.float16).reshape(2, 3, 2, 2, 2, 4, 2, 4)
    for group, ky, step, u, kx, c, b, lane in np.ndindex(run.shape):
        o, i = (group * 2 + b) * 4 + lane, (step * 2 + u) * 4 + c
        assert run[group, ky, step, u, kx, c, b, lane] == (weight[o, i, ky, kx] if o < 10 else 0)


def test_slots_of_an_830() -> None:
    """Its file holds twelve waves of eight blocks by two: LiteRT's engine counts so."""
    file = load_target("adreno:830").performance.constant_file
    assert file is not None
    assert [file.slots(vectors) for vectors in (32, 24, 16, 8)] == [12, 16, 24, 32]
    assert load_target("adreno").performance.constant_file is None
