"""Constants in another order are told, not kept, and buckets hold each once."""

import gc
import weakref
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from adrenoc.base.reporter import SilentReporter
from adrenoc.bundle.buckets import BatchRule
from adrenoc.bundle.manifest import ParamSpec
from adrenoc.compile import make_buckets
from adrenoc.compile.constant_store import ConstantStore
from adrenoc.ir.half import round_constant
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.program import Packing
from adrenoc.kernels.families.winograd.winograd import winograd
from adrenoc.target.target import load_target


@dataclass(frozen=True, kw_only=True)
class Made:
    """As much of what a compilation gives as a store reads."""

    params: dict[str, np.ndarray]
    packings: dict[str, Packing]
    param_specs: tuple[ParamSpec, ...] = field(default=())


WEIGHTS = np.random.default_rng(0).standard_normal((30, 24, 3, 3)).astype(np.float32)


def _by_blocks(lanes: int):
    """Output channels in blocks of so many, filled up with zeros, the window outermost."""

    def pack(w: np.ndarray) -> np.ndarray:
        whole = -(-w.shape[0] // lanes) * lanes
        padded = np.pad(w, [(0, whole - w.shape[0]), (0, 0), (0, 0), (0, 0)])
        blocks = padded.reshape(whole // lanes, lanes, *w.shape[1:])
        return np.ascontiguousarray(blocks.transpose(3, 4, 0, 2, 1))

    return pack


def _made(pack, prepare=np.asarray, dtype: str = "float16", weights=WEIGHTS) -> Made:
    def rounded(numbers: np.ndarray) -> np.ndarray:
        return prepare(numbers).astype(dtype)

    packing = Packing(
        constant=weights,
        prepare=prepare,
        pack=lambda numbers: pack(rounded(numbers)),
        make_rounded=lambda: rounded(weights),
        move=pack,
    )
    value = pack(rounded(weights))
    spec = ParamSpec(name="p0", shape=value.shape, dtype=dtype)
    return Made(params={"p0": value}, packings={"p0": packing}, param_specs=(spec,))


def _made_winograd(lanes: int, outputs: int, prepare=np.asarray, weights=WEIGHTS) -> Made:
    """The same weights as Winograd's algorithm has them."""
    matrix, pack = winograd(outputs).weight_transform, _by_blocks(lanes)

    def rounded() -> np.ndarray:
        return round_constant(prepare(weights), "float16", matrix).value

    packing = Packing(
        constant=weights,
        prepare=prepare,
        pack=None,
        make_rounded=rounded,
        move=pack,
        transform=matrix,
    )
    value = pack(rounded())
    spec = ParamSpec(name="p0", shape=value.shape, dtype="float16")
    return Made(params={"p0": value}, packings={"p0": packing}, param_specs=(spec,))


def _share(*made: Made) -> ConstantStore:
    store = ConstantStore(moves=True)
    for one in made:
        store.share_constants(one)
    return store


def _transform(w: np.ndarray) -> np.ndarray:
    """What computes: as Winograd's algorithm does with weights."""
    halves = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    return np.einsum("ia,ocab,jb->ocij", halves, w, halves)


@pytest.mark.parametrize("prepare", [np.asarray, _transform])
def test_another_order_is_told(prepare):
    first, other = _made(_by_blocks(4), prepare), _made(_by_blocks(16), prepare)
    store = _share(first, other, first)
    assert list(store.params) == ["p0"]
    move = store.moves["p1"]
    assert move.bring(store.params["p0"], "").tobytes() == other.params["p0"].tobytes()


@pytest.mark.parametrize("outputs", [2, 3, 4])
@pytest.mark.parametrize("first", [True, False])
def test_transformed_filters_are_made_of_plain_ones(first, outputs):
    plain, other = _made(_by_blocks(4)), _made_winograd(16, outputs)
    store = _share(*((plain, other) if first else (other, plain)))
    assert sum(value.size for value in store.params.values()) <= plain.params["p0"].size
    made = {move.shape: move.bring(store.params[move.source], "") for move in store.moves.values()}
    assert made[other.params["p0"].shape].tobytes() == other.params["p0"].tobytes()
    if not first:
        assert made[plain.params["p0"].shape].tobytes() == plain.params["p0"].tobytes()


def test_transformed_filters_alone_are_kept_plain():
    two, four = _made_winograd(16, 2), _made_winograd(4, 4)
    store = _share(two, four)
    assert [value.shape for value in store.params.values()] == [WEIGHTS.shape]
    assert len(store.moves) == 2


def test_filters_of_another_order_of_axes_are_found():
    """A file may keep them with output channels last."""
    weights = np.ascontiguousarray(WEIGHTS.transpose(2, 3, 1, 0))

    def prepare(numbers: np.ndarray) -> np.ndarray:
        return numbers.transpose(3, 2, 0, 1)

    plain = _made(_by_blocks(4), prepare, weights=weights)
    other = _made_winograd(16, 4, prepare, weights)
    for made in ((plain, other), (other, plain)):
        store = _share(*made)
        assert len(store.params) == 1
        for name, value in other.params.items():
            move = next(m for m in store.moves.values() if m.transform is not None)
            assert move.bring(store.params[move.source], name).tobytes() == value.tobytes()


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
def test_what_is_no_other_order_is_kept(other):
    store = _share(_made(_by_blocks(4)), other)
    assert list(store.params) == ["p0", "p1"]
    assert store.moves == {}


def test_a_store_of_one_device_keeps_all():
    store = ConstantStore()
    for one in (_made(_by_blocks(4)), _made(_by_blocks(16)), _made(_by_blocks(4))):
        store.share_constants(one)
    assert list(store.params) == ["p0", "p1"]
    assert store.moves == {}


@dataclass(frozen=True, kw_only=True)
class MadeBucket:
    """As much of what a compilation gives as buckets share."""

    params: dict[str, np.ndarray]
    packings: dict[str, Packing]
    param_specs: tuple[ParamSpec, ...]
    inputs: tuple[object, ...] = field(default=())


@pytest.mark.nightly
def test_what_a_bucket_was_packed_of_goes(monkeypatch):
    constants: list[weakref.ref[np.ndarray]] = []
    packed: list[weakref.ref[np.ndarray]] = []
    held: list[tuple[int, int]] = []

    def compile_model(*_words, **_options) -> MadeBucket:
        gc.collect()
        held.append(tuple(sum(r() is not None for r in refs) for refs in (constants, packed)))
        constant, value = np.ones(64, np.float32), np.arange(64, dtype=np.float32)
        constants.append(weakref.ref(constant))
        packed.append(weakref.ref(value))
        return MadeBucket(
            params={"p0": value},
            packings={
                "p0": Packing(
                    constant=constant,
                    prepare=np.asarray,
                    pack=np.asarray,
                    make_rounded=list,
                    move=np.asarray,
                )
            },
            param_specs=(ParamSpec(name="p0", shape=(64,), dtype="float32"),),
        )

    monkeypatch.setattr(make_buckets, "compile_model", compile_model)
    monkeypatch.setattr(
        make_buckets, "_find_batch", lambda *_: BatchRule(inputs=(), outputs=(), refused="")
    )
    found = make_buckets.compile_buckets(
        Path("model.onnx"),
        target=load_target("host"),
        options=CompileOptions(),
        buckets=[(("x", (count, 3)),) for count in (1, 2, 4)],
        reporter=SilentReporter(),
    )
    # The first one's packed constants serve all; what they were packed of, and equals, are gone.
    assert held == [(0, 0), (0, 1), (0, 1)]
    assert list(found.params) == ["p0"]
    assert all(one.params["p0"] is found.params["p0"] for one in found.compiled)
