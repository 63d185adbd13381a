"""Layouts and packing: each element has a texel of its own, what is alive at once lies apart."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adrenoc.ir.layout import Layout, TexelOrder, agree, default_layout
from adrenoc.passes.lower.plan_memory import (
    Lifetime,
    buffer_bytes,
    image_bytes,
    most_alive,
    pack_by_offset,
    pack_slots,
    pitched_image_bytes,
)

_EXTENTS = st.integers(1, 9)


def test_planes_and_rows_of_an_activation():
    planes = Layout("NCHW")
    assert planes.texture_shape((2, 30, 5, 7)) == (16, 5, 7, 4)
    assert planes.reorder(TexelOrder.ROWS).texture_shape((2, 30, 5, 7)) == (2, 35, 8, 4)


def test_roles_follow_a_transpose():
    assert Layout("NCHW").permute((0, 2, 3, 1)) == Layout("NHWC")


def test_nhwc_and_its_transpose_have_the_same_texture():
    assert Layout("NHWC").texture_shape((1, 8, 9, 5)) == Layout("NCHW").texture_shape((1, 5, 8, 9))


def test_axes_of_extent_one_do_not_decide():
    assert agree(Layout("1CHW"), Layout("NCHW"), (1, 8, 4, 4))
    assert not agree(Layout("1CHW"), Layout("NCHW"), (2, 8, 4, 4))
    assert not agree(Layout("NCHW"), Layout("NHWC"), (1, 8, 4, 4))


@pytest.mark.parametrize("roles", ["NCHN", "ABCD", "NCHWC"])
def test_a_role_is_played_once(roles):
    with pytest.raises(ValueError, match="at most once"):
        Layout(roles)


@pytest.mark.parametrize(
    ("shape", "roles"),
    [
        ((7,), "C"),
        ((3, 7), "WC"),
        ((1, 197, 192), "NWC"),
        ((1, 3, 224, 224), "NCHW"),
        ((1, 197, 3, 3, 64), "1NHWC"),
    ],
)
def test_default_roles_by_rank(shape, roles):
    assert default_layout(shape).roles == roles


def test_one_number_is_one_texel():
    assert default_layout(()).texture_shape(()) == (1, 1, 1, 4)


def test_no_layout_for_five_wide_axes():
    assert default_layout((2, 2, 2, 2, 2)) is None


@given(
    st.lists(_EXTENTS, min_size=4, max_size=4), st.permutations("NCHW"), st.sampled_from(TexelOrder)
)
def test_every_element_has_a_place_of_its_own(shape, roles, order):
    layout = Layout("".join(roles), order)
    layers, rows, cols, lanes = layout.texture_shape(shape)
    e = layout.extents(shape)
    assert layers * rows * cols * lanes == e.n * e.h * e.w * e.blocks * 4
    assert e.n * e.c * e.h * e.w == math.prod(shape)
    seen = np.zeros((layers, rows, cols, lanes), int)
    for n, c, h, w in np.ndindex(e.n, e.c, e.h, e.w):
        if order is TexelOrder.PLANES:
            seen[n * e.blocks + c // 4, h, w, c % 4] += 1
        else:
            seen[n, h * e.w + w, c // 4, c % 4] += 1
    assert seen.max() == 1
    assert seen.sum() == math.prod(shape)


def _cost(slots: list[list[Lifetime]]) -> int:
    return sum(max(i.bytes for i in held) for held in slots)


def _interval(name: str, first: int, last: int, size: int) -> Lifetime:
    return Lifetime(name=name, first=first, last=last, bytes=size)


SPANS = st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(1, 64))


@given(st.lists(SPANS, max_size=40))
def test_slots_hold_one_tensor_at_a_time(spans):
    intervals = [_interval(str(n), a, a + length, s) for n, (a, length, s) in enumerate(spans)]
    slots = pack_slots(intervals)
    assert sorted(i.name for held in slots for i in held) == sorted(i.name for i in intervals)
    for held in slots:
        for one, other in combinations(held, 2):
            assert one.last < other.first or other.last < one.first
    least, _ = most_alive(intervals)
    assert least <= _cost(slots) <= sum(i.bytes for i in intervals)


def test_chain_needs_two_slots():
    chain = [_interval(str(n), n, n + 1, 100) for n in range(50)]
    assert _cost(pack_slots(chain)) == 200


def test_tensors_that_grow_share_what_the_largest_needs():
    """DenseNet: each step concatenates; packing in the order of steps would grow every slot."""
    grown = [_interval(f"g{n}", 2 * n, 2 * n + 2, 10 * (n + 1)) for n in range(20)]
    small = [_interval(f"s{n}", 2 * n + 1, 2 * n + 2, 10) for n in range(20)]
    least, where = most_alive([*grown, *small])
    assert (least, where) == (400, 38)  # the last two grown and one small
    assert _cost(pack_slots([*grown, *small])) <= 1.1 * least


def test_peak_is_where_most_is_alive():
    assert most_alive([]) == (0, 0)
    assert most_alive([_interval("a", 0, 3, 5), _interval("b", 2, 4, 7)]) == (12, 2)


def test_allocation_follows_the_size_classes_of_the_pool():
    assert [buffer_bytes(n) for n in (0, 1, 256, 257, 4096, 4097, 5000)] == [
        256,
        256,
        256,
        512,
        4096,
        4608,
        5120,
    ]
    for requested in range(1, 100_000, 37):
        assert requested <= buffer_bytes(requested) <= max(256, requested * 9 // 8 + 256)
    assert image_bytes((2, 3, 5, 4), 16) == 240
    assert pitched_image_bytes((2, 3, 5, 4), 16, 64) == 2 * 3 * 64 * 4 * 2


_SIZED = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 6), st.integers(1, 50)).map(
        lambda t: (t[0], t[0] + t[1], t[2])
    ),
    max_size=30,
)


@given(_SIZED)
def test_what_is_alive_at_once_lies_apart(sized):
    offsets = pack_by_offset(sized)
    assert len(offsets) == len(sized)
    for i, (first, last, held) in enumerate(sized):
        assert offsets[i] >= 0
        for j, (other_first, other_last, other_held) in enumerate(sized[:i]):
            if first <= other_last and other_first <= last:
                apart = offsets[i] >= offsets[j] + other_held or offsets[j] >= offsets[i] + held
                assert apart, (i, j, offsets)


def test_a_chain_takes_what_is_alive():
    """Each tensor is read by the next step alone: sizes that differ cost nothing."""
    sizes = [96, 24, 56, 14, 80, 7, 40, 3]
    sized = [(i, i + 1, size) for i, size in enumerate(sizes)]
    offsets = pack_by_offset(sized)
    intervals = [
        Lifetime(name=str(i), first=first, last=last, bytes=held)
        for i, (first, last, held) in enumerate(sized)
    ]
    end = max(offset + size for offset, size in zip(offsets, sizes, strict=True))
    assert end == most_alive(intervals)[0]
