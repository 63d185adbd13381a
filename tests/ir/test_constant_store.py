"""Constants in another order are told, not kept: exactly, or not at all."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from adrenoc.bundle.manifest import ParamSpec
from adrenoc.compile.constant_store import ConstantStore
from adrenoc.ir.program import Packing


@dataclass(frozen=True, kw_only=True)
class Made:
    """As much of what a compilation gives as a store reads."""

    params: dict[str, np.ndarray]
    packings: dict[str, Packing]
    param_specs: tuple[ParamSpec, ...] = field(default=())


WEIGHTS = np.random.default_rng(0).standard_normal((30, 24, 3, 3)).astype(np.float32)


def _by_blocks(lanes: int):  # type: ignore[no-untyped-def]
    """Output channels in blocks of so many, filled up with zeros, the window outermost."""

    def pack(w: np.ndarray) -> np.ndarray:
        whole = -(-w.shape[0] // lanes) * lanes
        padded = np.pad(w, [(0, whole - w.shape[0]), (0, 0), (0, 0), (0, 0)])
        blocks = padded.reshape(whole // lanes, lanes, *w.shape[1:])
        return np.ascontiguousarray(blocks.transpose(3, 4, 0, 2, 1))

    return pack


def _made(pack, prepare=np.asarray, dtype: str = "float16", weights=WEIGHTS) -> Made:  # type: ignore[no-untyped-def]
    def rounded(numbers: np.ndarray) -> np.ndarray:
        return prepare(numbers).astype(dtype)

    packing = Packing(
        constant=weights,
        pack=lambda numbers: pack(rounded(numbers)),
        make_rounded=lambda: rounded(weights),
        move=pack,
    )
    value = pack(rounded(weights))
    spec = ParamSpec(name="p0", shape=value.shape, dtype=dtype)
    return Made(params={"p0": value}, packings={"p0": packing}, param_specs=(spec,))


def _share(*made: Made) -> ConstantStore:
    store = ConstantStore(moves=True)
    for one in made:
        store.share_constants(one)  # type: ignore[arg-type]
    return store


def _transform(w: np.ndarray) -> np.ndarray:
    """What computes: as Winograd's algorithm does with weights."""
    halves = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    return np.einsum("ia,ocab,jb->ocij", halves, w, halves)


@pytest.mark.parametrize("prepare", [np.asarray, _transform])
def test_another_order_is_told(prepare) -> None:  # type: ignore[no-untyped-def]
    first, other = _made(_by_blocks(4), prepare), _made(_by_blocks(16), prepare)
    store = _share(first, other, first)
    assert list(store.params) == ["p0"]
    move = store.moves["p1"]
    assert move.bring(store.params["p0"], "").tobytes() == other.params["p0"].tobytes()


@pytest.mark.parametrize(
    "other",
    [
        _made(_by_blocks(16), dtype="float32"),
        _made(_by_blocks(4), _transform),
        _made(_by_blocks(16), weights=WEIGHTS + 1),
        _made(lambda w: np.ascontiguousarray(w[::-1] * 2)),
    ],
    ids=["dtype", "computed", "numbers", "doubled"],
)
def test_what_is_no_other_order_is_kept(other: Made) -> None:
    store = _share(_made(_by_blocks(4)), other)
    assert list(store.params) == ["p0", "p1"]
    assert store.moves == {}


def test_a_store_of_one_device_keeps_all() -> None:
    store = ConstantStore()
    for one in (_made(_by_blocks(4)), _made(_by_blocks(16)), _made(_by_blocks(4))):
        store.share_constants(one)  # type: ignore[arg-type]
    assert list(store.params) == ["p0", "p1"]
    assert store.moves == {}
