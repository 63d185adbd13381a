"""Pack constant weights into texels at compile time.

Packed weights have the physical shape `[layers, rows, cols, 4]`: one texel holds one input
channel's weight for four output channels (`OIHW4o`), so that a multiply-add takes a scalar of
the activation and a texel of the weights.  Channels that do not exist are zero.
"""

import numpy as np

from adrenoc.ir.layout import LANES

NARROWEST_ROW = 64
"""Texels of a row of `fill_rows`: what half of a wave reads at once."""


def blocks(channels: int) -> int:
    """Return blocks of four that hold so many channels."""
    return -(-channels // LANES)


def group_window(out_channels: int, in_channels: int, groups: int) -> tuple[int, int]:
    """Return input blocks that one output block needs: (blocks read, first block of a later one).
    The first input block of output block `o` is `(4 o // Og) * Ig // 4`, with Og and Ig the
    channels a group; the number read is the same for every output block."""
    per_out, per_in = out_channels // groups, in_channels // groups
    most = 0
    for o in range(blocks(out_channels)):
        first = first_input_block(o, per_out, per_in)
        last_group = min(LANES * o + LANES - 1, out_channels - 1) // per_out
        most = max(most, blocks((last_group + 1) * per_in) - first)
    return most, per_in


def first_input_block(out_block: int, per_out: int, per_in: int) -> int:
    """Return the first input block that output block `out_block` of a grouped convolution reads."""
    return (LANES * out_block // per_out) * per_in // LANES


def fill_channels(weight: np.ndarray, out_channels: int, in_channels: int) -> np.ndarray:
    """Return `[O, I, ...]` with zeros up to so many channels; itself where it has them all."""
    if weight.shape[:2] == (out_channels, in_channels):
        return weight  # of half a gigabyte of weights, a copy less
    padded = np.zeros((out_channels, in_channels, *weight.shape[2:]), weight.dtype)
    padded[: weight.shape[0], : weight.shape[1]] = weight
    return padded


def pack_conv(weight: np.ndarray, groups: int) -> np.ndarray:
    """Pack `[O, I/groups, KH, KW]` as `[KH * KW, O/4, window * 4, 4]`.  The window is the run of
    input blocks that an output block reads: all of them for one group."""
    out_channels, per_in, kh, kw = weight.shape
    in_channels = per_in * groups
    per_out = out_channels // groups
    window, _ = group_window(out_channels, in_channels, groups)
    if groups == 1:
        padded = fill_channels(weight, blocks(out_channels) * LANES, window * LANES)
        by_block = padded.reshape(-1, LANES, window * LANES, kh * kw)
        return np.ascontiguousarray(by_block.transpose(3, 0, 2, 1))
    packed = np.zeros((kh * kw, blocks(out_channels), window * LANES, LANES), weight.dtype)
    for o in range(out_channels):
        first = first_input_block(o // LANES, per_out, per_in) * LANES
        start = (o // per_out) * per_in - first
        taps = weight[o].reshape(per_in, kh * kw)
        packed[:, o // LANES, start : start + per_in, o % LANES] = taps.T
    return packed


def pack_depthwise(weight: np.ndarray) -> np.ndarray:
    """Pack `[C, 1, KH, KW]` as `[1, KH * KW, C/4, 4]`: a texel holds four channels' tap."""
    channels, _, kh, kw = weight.shape
    packed = np.zeros((kh * kw, blocks(channels) * LANES), weight.dtype)
    packed[:, :channels] = weight.reshape(channels, kh * kw).T
    return packed.reshape(1, kh * kw, blocks(channels), LANES)


def pack_blocked(value: np.ndarray, roles: str, rows_fold: bool) -> np.ndarray:
    """Pack any constant of at most four roles as its layout lies: `[layers, rows, cols, 4]`."""
    by_role = {role: axis for axis, role in enumerate(roles) if role != "1"}
    wide = value.reshape([e for r, e in zip(roles, value.shape, strict=True) if r != "1"])
    kept = [r for r in roles if r != "1"]
    ordered = wide.transpose([kept.index(r) for r in "NCHW" if r in by_role])
    shape = [value.shape[by_role[r]] if r in by_role else 1 for r in "NCHW"]
    nchw = ordered.reshape(shape)
    n, c, h, w = shape
    padded = np.zeros((n, blocks(c) * LANES, h, w), value.dtype)
    padded[:, :c] = nchw
    tiled = padded.reshape(n, blocks(c), LANES, h, w)
    if rows_fold:
        return np.ascontiguousarray(
            tiled.transpose(0, 3, 4, 1, 2).reshape(n, h * w, blocks(c), LANES)
        )
    return np.ascontiguousarray(tiled.transpose(0, 1, 3, 4, 2).reshape(n * blocks(c), h, w, LANES))


def whole_k_steps(in_blocks: int, k_step: int) -> int:
    """Return input blocks, filled up so that a loop takes `k-step` of them at a time."""
    return -(-in_blocks // k_step) * k_step


def fill_rows(run: np.ndarray, *, most_rows: int) -> np.ndarray:
    """Return a flat run as texels, one row of a texture after the other: `[1, rows, columns, 4]`.
    Rows are as short as that allows, a power of two long: what a work-group reads then lies close
    together in both directions, as texture caches hold it."""
    texels = run.reshape(-1, LANES)
    columns = NARROWEST_ROW
    while len(texels) > columns * most_rows:
        columns *= 2
    rows = -(-len(texels) // columns)
    filled = np.zeros((rows * columns, LANES), texels.dtype)
    filled[: len(texels)] = texels
    return filled.reshape(1, rows, columns, LANES)


def pack_local(weight: np.ndarray, out_blocks: int, bands: int, k_step: int) -> np.ndarray:
    """Pack `[O, I, KH, KW]` for `conv2d_local`, flat.

    The order is [work-group, KH, input block, band, KW, channel, output block, 4].

    Output blocks are padded to whole work-groups, input blocks to whole k-steps.
    """
    out_channels, in_channels, kh, kw = weight.shape
    per_group = out_blocks * bands
    channel_groups = -(-blocks(out_channels) // per_group)
    window = whole_k_steps(blocks(in_channels), k_step)
    padded = fill_channels(weight, channel_groups * per_group * LANES, window * LANES)
    split = padded.reshape(channel_groups, bands, out_blocks, LANES, window, LANES, kh, kw)
    ordered = split.transpose(0, 6, 4, 1, 7, 5, 2, 3)
    return np.ascontiguousarray(ordered).reshape(-1)
