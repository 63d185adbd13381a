"""What candidates are launched on."""

from __future__ import annotations

import math

import numpy as np
import pytest

from adrenoc.ir.layout import Layout
from adrenoc.ir.operand import Memory, OperandSpec
from adrenoc.tune.variant import PATTERN, is_repeated, random_value

LARGE = (1, 16, 40, 40)


def _spec(
    shape: tuple[int, ...], dtype: str = "float32", memory: Memory = Memory.TEXTURE
) -> OperandSpec:
    return OperandSpec(shape, dtype, memory, Layout("NCHW"))


@pytest.mark.parametrize("memory", [Memory.TEXTURE, Memory.PLAIN])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_a_large_input_is_sent_as_a_pattern(memory: Memory, dtype: str) -> None:
    spec = _spec(LARGE, dtype, memory)
    assert is_repeated(spec)
    value = random_value(spec, "seed")
    assert (value.shape, value.dtype) == ((PATTERN,), np.dtype(dtype))
    assert len(np.unique(value)) > 1


def test_rows_and_blocks_of_a_pattern_differ() -> None:
    """A kernel that reads the wrong row or block is found: the period divides neither."""
    assert all(PATTERN % factor for factor in range(2, math.isqrt(PATTERN) + 1))


@pytest.mark.parametrize("shape", [(1, 15, 40, 40), (1, 4, 5, 5)])
def test_inputs_with_empty_lanes_and_small_ones_are_sent_whole(shape: tuple[int, ...]) -> None:
    spec = _spec(shape)
    assert not is_repeated(spec)
    value = random_value(spec, "seed")
    assert value.shape == spec.physical
    if shape[1] % 4:
        assert not value[-1, ..., shape[1] % 4 :].any()


def test_words_of_bytes_are_sent_whole() -> None:
    spec = _spec((1, 64, 40, 40), "uint32", Memory.BYTES)
    assert not is_repeated(spec)
    assert random_value(spec, "seed").shape == spec.physical
