"""Buckets hold each constant once, and nothing of the model beside."""

import gc
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adrenoc.base.reporter import SilentReporter
from adrenoc.bundle.buckets import BatchRule
from adrenoc.bundle.manifest import ParamSpec
from adrenoc.compile import make_buckets
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.program import Packing
from adrenoc.target.target import load_target


@dataclass(frozen=True, kw_only=True)
class Made:
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

    def compile_model(*_words: Any, **_options: Any) -> Made:
        gc.collect()
        held.append(tuple(sum(r() is not None for r in refs) for refs in (constants, packed)))
        constant, value = np.ones(64, np.float32), np.arange(64, dtype=np.float32)
        constants.append(weakref.ref(constant))
        packed.append(weakref.ref(value))
        return Made(
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
