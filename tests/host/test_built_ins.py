"""Kernels by what drivers do not tell of: weights in the constant file, products by matrix units.

No device at hand has the built-ins.  `constant_file.cl` and `matrix_units.cl` of tests/opencl give
them their meaning, in a process whose driver runs one work-group at a time; without them kernels
are what their texts are in the other reading.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adrenoc.kernels.families.conv import conv_rules
from adrenoc.kernels.families.conv.built_in_conv import (
    constant_candidates,
    matrix_candidates,
    pack_steps,
    pack_tiles,
)
from adrenoc.kernels.families.shared.conv_geometry import ConvTile
from adrenoc.kernels.families.shared.machine import TileTables
from adrenoc.kernels.families.winograd import winograd
from adrenoc.target.target import load_target
from tests.decided import force_winograd
from tests.host.run_op import Ops
from tests.opencl.implementation import plain_environment

pytestmark = pytest.mark.operator

WORDS = Path(__file__).parents[1] / "opencl"
EXPECTED = os.environ.get("BUILT_INS_EXPECTED", "the driver does not take its built-ins")
"""What the runtime says became of them."""
CASES: tuple[tuple[int, int, int, int, dict[str, Any]], ...] = (
    (64, 32, 9, 1, {}),
    (64, 24, 21, 1, {"strides": [2, 2]}),
    (64, 30, 14, 3, {"pads": [1, 1, 1, 1]}),
    (64, 36, 13, 3, {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    (64, 20, 12, 3, {"dilations": [2, 2], "pads": [2, 2, 2, 2]}),
    (32, 24, 8, 5, {"pads": [2, 2, 2, 2]}),
)


@pytest.fixture
def offer(monkeypatch) -> Iterator[Callable[[Any], None]]:
    """Convolutions have no route but that of a function that lists tiles."""

    def take(list_tiles) -> None:
        def candidates(work, limits, machine) -> TileTables[ConvTile]:
            return TileTables(list_tiles(work, limits, machine))

        monkeypatch.setattr(conv_rules, "candidates", candidates)
        conv_rules.score_tiles.cache_clear()

    yield take
    conv_rules.score_tiles.cache_clear()


def _what_became(module) -> Iterator[str]:
    for part in module.imports:
        if part.kind == "opencl":
            yield str(part.get_function("adrenoc.built_ins")(0))
        yield from _what_became(part)


def _check(ops: Ops, device, name: str, target: str, *, algorithm: bool = False) -> None:
    ops.asked = {"compute_dtype": "float16", "winograd": algorithm}
    ops.check(device, "fp16", target=target)
    (said,) = _what_became(ops.module)
    assert said.startswith(f"{name}: ") and EXPECTED in said


@pytest.mark.parametrize(("channels", "out", "side", "kernel", "attrs"), CASES)
def test_constant_file(ops, device, offer, channels, out, side, kernel, attrs):
    offer(constant_candidates)
    x = ops("Relu", ops.input(2, channels, side, side))
    weight, bias = ops.weight(out, channels, kernel, kernel), ops.weight(out)
    ops.output(ops("Relu", ops("Conv", x, weight, bias, **attrs)))
    _check(ops, device, "the constant file", "host:830")


@pytest.mark.parametrize(("channels", "out", "side"), [(64, 32, 9), (36, 70, 13), (16, 16, 7)])
def test_matrix_units(ops, device, offer, channels, out, side):
    """Channels that fill no tile, pixels that fill no run of tiles, two images."""
    offer(matrix_candidates)
    x = ops("Relu", ops.input(2, channels, side, side))
    made = ops("Conv", x, ops.weight(out, channels, 1, 1), ops.weight(out))
    ops.output(ops("Relu", made))
    _check(ops, device, "matrix units", "host:850")


@pytest.mark.parametrize(
    ("list_tiles", "name", "target"),
    [
        (constant_candidates, "the constant file", "host:830"),
        (matrix_candidates, "matrix units", "host:850"),
    ],
)
def test_products(ops, device, offer, list_tiles, name, target):
    offer(list_tiles)
    x = ops("Relu", ops.input(1, 50, 96))
    ops.output(ops("Relu", ops("MatMul", x, ops.weight(96, 72))))
    _check(ops, device, name, target)


@pytest.mark.parametrize("side", [33, 40])
def test_winograd_products(ops, device, monkeypatch, side):
    """Each row of the product, a number of all tiles, has weights of its own."""
    force_winograd(monkeypatch)
    monkeypatch.setattr(
        winograd, "multiply_candidates", lambda *of: TileTables(constant_candidates(*of))
    )
    winograd.score_multiply_tiles.cache_clear()
    x = ops("Relu", ops.input(1, 64, side, side))
    made = ops("Conv", x, ops.weight(36, 64, 3, 3), ops.weight(36), pads=[1, 1, 1, 1])
    ops.output(ops("Relu", made))
    _check(ops, device, "the constant file", "host:830", algorithm=True)
    winograd.score_multiply_tiles.cache_clear()
    assert "winograd_multiply" in ops.kernels


def _run_with(words: str, expected: str, folder: Path, *chosen: str) -> None:
    plain = plain_environment(folder)
    if not plain:
        pytest.skip("no C compiler on this machine")
    (folder / "words.cl").write_text(words)
    environment = {
        **os.environ,
        **plain,
        "DRIVER_WORDS": str(folder / "words.cl"),
        "BUILT_INS_EXPECTED": expected,
        # The file of all waves is one buffer: work-groups come one after the other.
        "CL_CONFIG_CPU_TBB_NUM_WORKERS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    command += [f"{__file__}::{name}" for name in chosen]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-4000:]
    assert " passed" in ended.stdout and "skipped" not in ended.stdout


_starts_others = pytest.mark.skipif("DRIVER_WORDS" in os.environ, reason="it starts the others")


@_starts_others
def test_with_the_built_ins(device, tmp_path):
    words = "".join(
        (WORDS / f"{name}.cl").read_text() for name in ("constant_file", "matrix_units")
    )
    chosen = ("constant_file", "matrix_units", "products", "winograd_products")
    chosen = tuple(f"test_{name}" for name in chosen)
    _run_with(words, "used, its trial was right", tmp_path, *chosen)


@_starts_others
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("constant_file", "to_[i_] = from_[i_]", "to_[i_] = from_[0]"),  # one vector for all
        ("matrix_units", "term < 16", "term < 15"),
        *(
            pytest.param(*words, marks=pytest.mark.nightly)
            for words in (
                ("constant_file", "i_ < count_; ++i_) to_[i_] = f", "i_ < 1; ++i_) to_[i_] = f"),
                ("constant_file", "(source) + (first)", "(source)"),
                (
                    "matrix_units",
                    "from[i / 16 * stride + i % 16]",
                    "from[i % 16 * stride + i / 16]",
                ),
                ("matrix_units", "coop_mat_init(value) (value)", "coop_mat_init(value) (1.0f)"),
            )
        ),
    ],
)
def test_a_driver_that_is_wrong_does_without(device, tmp_path, name, right, wrong):
    """Kernels are right all the same: the runtime's trial tells."""
    words = (WORDS / f"{name}.cl").read_text()
    assert words.count(right) == 1
    _run_with(words.replace(right, wrong), "sums of a trial are wrong", tmp_path, f"test_{name}")


def test_packing_of_steps():
    """A wave finds the vectors of each of its k-steps one after the other."""
    weight = np.arange(10 * 16 * 3 * 2, dtype=np.float16).reshape(10, 16, 3, 2)
    tile = ConvTile(pixels=1, out_blocks=2, unroll=2)
    run = pack_steps(weight, tile).view(np.float16).reshape(2, 3, 2, 2, 2, 4, 2, 4)
    for group, ky, step, u, kx, c, b, lane in np.ndindex(run.shape):
        o, i = (group * 2 + b) * 4 + lane, (step * 2 + u) * 4 + c
        assert run[group, ky, step, u, kx, c, b, lane] == (weight[o, i, ky, kx] if o < 10 else 0)


def test_packing_of_tiles():
    weight = np.arange(1, 1 + 22 * 36, dtype=np.float16).reshape(22, 36, 1, 1)
    run = pack_tiles(weight, ConvTile(pixels=16, out_blocks=4)).view(np.float16)
    run = run.reshape(2, 3, 16, 16)
    for band, step, term, column in np.ndindex(run.shape):
        o, i = band * 16 + column, step * 16 + term
        assert run[band, step, term, column] == (weight[o, i, 0, 0] if o < 22 and i < 36 else 0)


def test_slots_of_an_830():
    """Its file holds twelve waves of eight blocks by two: LiteRT's engine counts so."""
    file = load_target("adreno:830").performance.constant_file
    assert [file.slots(vectors) for vectors in (32, 24, 16, 8)] == [12, 16, 24, 32]
    assert load_target("adreno").performance.constant_file is None
