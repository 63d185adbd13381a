"""Packed weights: every weight where the kernel reads it, zero elsewhere."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adrenoc.kernels.weights import (
    fill_channels,
    fill_rows,
    first_input_block,
    group_window,
    pack_blocked,
    pack_conv,
    pack_depthwise,
    pack_local,
)


@given(
    groups=st.integers(1, 5),
    per_out=st.integers(1, 6),
    per_in=st.integers(1, 6),
    kernel=st.integers(1, 3),
)
def test_a_packed_convolution_computes_the_same(
    groups: int, per_out: int, per_in: int, kernel: int
) -> None:
    """Multiply as the kernel does, by blocks, and compare with the definition at one pixel."""
    rng = np.random.default_rng(groups * 100 + per_out * 10 + per_in)
    out_channels, in_channels = groups * per_out, groups * per_in
    weight = rng.standard_normal((out_channels, per_in, kernel, 1)).astype(np.float32)
    pixels = rng.standard_normal((kernel, in_channels)).astype(np.float32)
    packed = pack_conv(weight, groups)
    window, _ = group_window(out_channels, in_channels, groups)
    padded = np.zeros((kernel, 4 * (in_channels + 4 * window)), np.float32)
    padded[:, :in_channels] = pixels
    computed = np.zeros(packed.shape[1] * 4, np.float32)
    for tap in range(kernel):
        for block in range(packed.shape[1]):
            first = 4 * first_input_block(block, per_out, per_in) if groups > 1 else 0
            for i in range(window * 4):
                computed[4 * block : 4 * block + 4] += (
                    padded[tap, first + i] * packed[tap, block, i]
                )
    for o in range(out_channels):
        group = o // per_out
        own = pixels[:, group * per_in : (group + 1) * per_in]
        np.testing.assert_allclose(computed[o], np.sum(own.T * weight[o, :, :, 0]), atol=1e-4)
    assert not computed[out_channels:].any()


def test_depthwise_taps_lie_in_rows() -> None:
    weight = np.arange(6 * 9, dtype=np.float32).reshape(6, 1, 3, 3)
    packed = pack_depthwise(weight)
    assert packed.shape == (1, 9, 2, 4)
    assert packed[0, 5, 1, 1] == weight[5, 0, 1, 2]
    assert not packed[0, :, 1, 2:].any()


def test_a_constant_is_packed_as_its_layout_lies() -> None:
    value = np.arange(2 * 5 * 3 * 7, dtype=np.float32).reshape(2, 5, 3, 7)
    planes = pack_blocked(value, "NCHW", rows_fold=False)
    rows = pack_blocked(value, "NCHW", rows_fold=True)
    assert planes.shape == (4, 3, 7, 4)
    assert planes[1 * 2 + 1, 2, 6, 0] == value[1, 4, 2, 6]
    assert rows.shape == (2, 21, 2, 4)
    assert rows[1, 2 * 7 + 6, 1, 0] == value[1, 4, 2, 6]
    assert not planes[1::2, :, :, 1:].any()
    np.testing.assert_array_equal(
        pack_blocked(value.transpose(0, 2, 3, 1), "NHWC", rows_fold=False), planes
    )


def test_weights_of_whole_blocks_are_not_copied_to_be_filled_up() -> None:
    weight = np.ones((8, 4, 3, 3), np.float32)
    assert fill_channels(weight, 8, 4) is weight
    more = fill_channels(weight, 12, 8)
    assert more.shape == (12, 8, 3, 3)
    assert more[:8, :4].all()
    assert not more[8:].any() and not more[:, 4:].any()


def test_texels_of_local_weights_are_the_same_numbers_row_by_row() -> None:
    weight = np.random.default_rng(0).standard_normal((36, 20, 3, 3)).astype(np.float16)
    flat = pack_local(weight, 2, 3, 2)
    for most_rows, columns in ((16384, 64), (8, 512)):
        texels = fill_rows(flat, most_rows=most_rows)
        assert texels.shape == (1, -(-flat.size // (4 * columns)), columns, 4)
        np.testing.assert_array_equal(texels.reshape(-1)[: flat.size], flat)
        assert not texels.reshape(-1)[flat.size :].any()
