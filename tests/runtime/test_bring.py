"""Constants that the runtime makes of others as it loads: in the very bits that Python makes."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adrenoc.bundle.params import (
    ConstantSource,
    FilterTransform,
    Places,
    moves_to_json,
    write_params,
)
from adrenoc.kernels.families.winograd.winograd import winograd
from tests.commands import run_program
from tests.runtime.test_damage import READERS, build_with_readers

OUTPUTS, INPUTS, TAPS = 12, 5, 3
ALL = 2**31 - 1
_READERS = ("half", "json", "utf8", "safetensors")


@pytest.fixture(scope="module")
def program(work: Path) -> Path:
    readers = tuple(r for r in READERS if r.rpartition("/")[2] in _READERS)
    own = tuple(r for r in READERS if r.rpartition("/")[2] in ("manifest", "moves"))
    return build_with_readers("bring.cc", work, (*readers, *own))


def _filters(dtype: str) -> np.ndarray:
    """Filters of all sizes: ordinary ones, what becomes infinite, and what halves hold coarsely."""
    random = np.random.default_rng(0)
    filters = random.standard_normal((OUTPUTS, INPUTS, TAPS, TAPS))
    scales = np.geomspace(1e-8, 6e4, OUTPUTS) / 4
    filters *= scales[:, None, None, None]
    filters[0] = 0
    filters[-1, 0] = 6e4
    filters[1, 1, 0] *= -0.0
    return filters.astype(dtype)


def _move(dtype: str, outputs: int) -> ConstantSource:
    """Filters that lie with their window first become transformed ones, with outputs innermost."""
    transform = FilterTransform.from_matrix(winograd(outputs).weight_transform)
    side = transform.side
    steps = (1, OUTPUTS, OUTPUTS * INPUTS * side, OUTPUTS * INPUTS)
    own = (INPUTS, 1, OUTPUTS * INPUTS * TAPS, OUTPUTS * INPUTS)
    return ConstantSource(
        name="p1",
        shape=(side, side, INPUTS, OUTPUTS),
        dtype=dtype,
        source="p0",
        width=np.dtype(dtype).itemsize,
        counts=(OUTPUTS, INPUTS, TAPS, TAPS),
        places=Places(first=0, digits=tuple(((ALL, step),) for step in steps)),
        source_places=Places(first=0, digits=tuple(((ALL, step),) for step in own)),
        transform=transform,
    )


@pytest.mark.nightly
@pytest.mark.parametrize("outputs", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_filters_are_transformed_in_the_same_bits(dtype, outputs, program, tmp_path):
    filters, move = _filters(dtype), _move(dtype, outputs)
    stored = np.ascontiguousarray(filters.transpose(2, 3, 0, 1))
    wanted = move.bring(stored, "")
    exact = np.einsum(
        "ik,ockl,jl->ijco",
        np.array(winograd(outputs).weight_transform, np.float64),
        filters.astype(np.float64),
        np.array(winograd(outputs).weight_transform, np.float64),
    )
    kind = np.finfo(dtype)
    with np.errstate(over="ignore"):
        # The last bit of a double may lie across the middle of two of the narrower numbers.
        near = {"rtol": kind.eps, "atol": kind.smallest_subnormal}
        np.testing.assert_allclose(wanted, exact.astype(dtype), **near)
    # Weights of F(4, 3) are never larger than those that they are made of.
    assert np.isinf(wanted).any() == (dtype == "float16" and outputs < 4)
    (tmp_path / "moves.json").write_text(moves_to_json({"p1": move}))
    write_params(tmp_path / "params", {"p0": stored})
    words = [program, tmp_path / "moves.json", tmp_path / "params", "p1", tmp_path / "made"]
    subprocess.run(words, check=True)
    assert (tmp_path / "made").read_bytes() == wanted.tobytes()


Change = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.pop("rows"),
        lambda t: t.update(rows=[]),
        lambda t: t["rows"].pop(),
        lambda t: t["rows"][0].pop(),
        lambda t: t.update(rows=[[1, 0], [0, 1]], divisors=[1, 1]),
        lambda t: t.update(rows=[[1, 0, 0]] * 9, divisors=[1] * 9),
        lambda t: t["divisors"].__setitem__(0, 0),
        lambda t: t["rows"][1].__setitem__(0, 1 << 20),
    ],
)
def test_transforms_that_no_compiler_writes_are_refused(change, program, tmp_path):
    move = _move("float16", 2)
    plain = json.loads(moves_to_json({"p1": move}))
    change(plain["moves"][0]["transform"])
    (tmp_path / "moves.json").write_text(json.dumps(plain))
    write_params(tmp_path / "params", {"p0": _filters("float16")})
    words = [program, tmp_path / "moves.json", tmp_path / "params", "p1", tmp_path / "made"]
    refused = run_program(words)
    assert refused.returncode == 1, refused
    assert "moves.json: moves[0].transform" in refused.stdout


def test_filters_of_whole_numbers_are_refused(program, tmp_path):
    move = replace(_move("float16", 2), width=1)
    (tmp_path / "moves.json").write_text(moves_to_json({"p1": move}))
    write_params(tmp_path / "params", {"p0": _filters("float16")})
    words = [program, tmp_path / "moves.json", tmp_path / "params", "p1", tmp_path / "made"]
    refused = run_program(words)
    assert refused.returncode == 1, refused
    assert "is of no filter" in refused.stdout
