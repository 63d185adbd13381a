"""Constants that are others in another order: brought exactly, and refused where they cannot be."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adrenoc.base.errors import BundleError
from adrenoc.bundle.manifest import ParamSpec
from adrenoc.bundle.params import (
    ConstantSource,
    Places,
    moves_to_json,
    read_moves,
    read_params,
    write_params,
)

# Five rows of three, of which `kept` has them in fours, and `wanted` column by column, padded.
KEPT = np.array([[10 * row + column for column in range(3)] + [0] for row in range(5)], np.float16)
WANTED = np.zeros((3, 8), np.float16)
WANTED[:, :5] = KEPT[:, :3].T
MOVE = ConstantSource(
    name="p1",
    shape=(3, 8),
    dtype="float16",
    source="p0",
    width=2,
    counts=(5, 3),
    places=Places(first=0, digits=(((2**31 - 1, 1),), ((2**31 - 1, 8),))),
    source_places=Places(first=0, digits=(((2**31 - 1, 4),), ((2**31 - 1, 1),))),
)


def _write(folder: Path, change: Callable[[dict[str, Any]], Any] = lambda plain: None) -> Path:
    plain = json.loads(moves_to_json({"p1": MOVE}))
    change(plain["moves"][0])
    path = folder / "moves.json"
    path.write_text(json.dumps(plain))
    return path


def _square(plain: dict[str, Any], **transform: Any) -> None:
    """A damaged transform of filters of three rows and columns."""
    plain.update(counts=[3, 3], transform=transform)


def test_a_constant_is_brought_from_another(tmp_path: Path) -> None:
    write_params(tmp_path / "params", {"p0": KEPT, "p7": KEPT})
    moves = read_moves(_write(tmp_path), "moves.json")
    assert moves == {"p1": MOVE}
    specs = [ParamSpec(name="p1", shape=(3, 8), dtype="float16")]
    found = read_params(tmp_path / "params", specs, where="it", moves=moves)
    assert list(found) == ["p1"]
    assert found["p1"].tobytes() == WANTED.tobytes()


def test_without_the_file_nothing_moves(tmp_path: Path) -> None:
    assert read_moves(tmp_path / "moves.json", "moves.json") == {}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.pop("source"), "lacks the key `source`"),
        (lambda m: m.update(width=3), "elements of 3 bytes"),
        (lambda m: m.update(width=0), "elements of 0 bytes"),
        (lambda m: m.update(dtype="float17"), "unknown dtype float17"),
        (lambda m: m.update(counts=[5]), "digits of 2 of 1 axes"),
        (lambda m: m.update(counts=[], places={"first": 0, "digits": []}), "of 0 axes"),
        (lambda m: m.update(counts=[-5, 3]), "beyond what memory holds"),
        (lambda m: m.update(counts=[2**20, 2**20]), "more elements than memory holds"),
        (lambda m: m.update(shape=[2**40, 1]), "beyond what memory holds"),
        (lambda m: m.update(counts=[30, 3]), "more elements than there are"),
        (lambda m: m["places"].update(first=12), "lies outside of its constant"),
        (lambda m: m["source_places"].update(first=-1), "lies outside of its constant"),
        (lambda m: m["places"].update(digits=[[[0, 1]], [[9, 8]]]), "no radix and stride"),
        (lambda m: m["places"].update(digits=[[[5]], [[9, 8]]]), "no radix and stride"),
        (lambda m: m["places"].update(digits=[[], [[9, 8]]]), "no radix and stride"),
        (lambda m: m.update(transform={"rows": [[1]], "divisors": [1]}), "transforms what is no"),
        (lambda m: m.update(transform={"rows": [], "divisors": []}), "transforms what is no"),
        (lambda m: _square(m, rows=[[1, 0, 0]], divisors=[0]), "divisors that are none"),
        (lambda m: _square(m, rows=[[1, 0, 0]], divisors=[1, 2]), "divisors that are none"),
        (lambda m: _square(m, rows=[[1, 0, 0]] * 9, divisors=[1] * 9), "to sides beyond"),
        (lambda m: _square(m, rows=[[1, 0, 1 << 20]], divisors=[1]), "beyond what memory holds"),
        (lambda m: _square(m, rows=[[1, 0, 0]] * 8, divisors=[1] * 8), "than there are"),
        (lambda m: m.update(source="p9"), "holds nothing at `p1`"),
        (lambda m: m.update(shape=[8, 3]), "expected float16 [3, 8]"),
    ],
)
def test_what_no_compiler_writes_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], said: str
) -> None:
    write_params(tmp_path / "params", {"p0": KEPT})
    specs = [ParamSpec(name="p1", shape=(3, 8), dtype="float16")]
    with pytest.raises(BundleError) as refused:
        moves = read_moves(_write(tmp_path, change), "moves.json")
        read_params(tmp_path / "params", specs, where="it", moves=moves)
    assert said in refused.value.message


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "moves.json"
    path.write_bytes(b"{")
    with pytest.raises(BundleError, match=r"moves\.json is not JSON"):
        read_moves(path, "x: moves.json")
