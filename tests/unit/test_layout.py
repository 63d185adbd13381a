"""Layouts: every element has a texel of its own, and roles decide what is free."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adrenoc.ir.layout import Layout, TexelOrder, agree, default_layout

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
