"""Convolutions of any window as products of widened pixels and weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from adrenoc.mcu.dsp.constants import Stored, stored
from adrenoc.mcu.dsp.packing import byte_rows, interleaved_words, padded, widened_pairs
from adrenoc.mcu.dsp.product_code import MOST_OFFSET, block_code, block_name
from adrenoc.mcu.dsp.row_code import CHANNELS, UNROLL, row_code, row_name
from adrenoc.mcu.kernel import Array, Kernel
from adrenoc.mcu.network import Convolution, Network, Sum
from adrenoc.mcu.plain import images_of
from adrenoc.mcu.sum_product import sum_product

_SNIPPETS = (
    *("requantise", "add_lines", "pairs", "widen", "widen_run"),
    *("patch_layer", "patches", "products"),
)
_MOST_UNROLL = 12
_MOST_STRIP = 48
_FEW_PIXELS = 3


def product_kernel(operator: Convolution, network: Network, scratch_bytes: int) -> Kernel:
    """The kernel of a convolution or a dense layer; it may take about `scratch_bytes`.

    Raises:
        NotImplementedError: its rule or its shape is not covered.
    """
    rule = stored(operator)
    (_, _, _), (height, width, channels) = images_of(operator, network)
    pixels = height * width
    side_by_side = operator.window.kernel == (1, 1) and operator.window.strides == (1, 1)
    if side_by_side and pixels < _FEW_PIXELS and not rule.doubled:
        return _rows(operator, network, rule, pixels)
    if 3 * channels > MOST_OFFSET:
        raise NotImplementedError(f"rows of {channels} channels")
    return _blocks(operator, network, rule, scratch_bytes)


def _rows(operator: Convolution, network: Network, rule: Stored, pixels: int) -> Kernel:
    channels, _, _, depth = operator.weights.shape
    pairs = widened_pairs(1, depth, 2 * UNROLL)
    rows = byte_rows(operator.weights.reshape(channels, depth), pairs)
    grown = [*rule.bias, *[0] * (-channels % CHANNELS)]
    constants = np.concatenate(
        [rule.constants, np.zeros((-channels % CHANNELS, rule.store.words), np.int64)]
    )
    rules = np.concatenate(
        [
            np.array(grown, np.int64).reshape(-1, CHANNELS),
            constants.reshape(-1, CHANNELS * rule.store.words),
        ],
        1,
    )
    arrays = (
        Array(suffix="weights", ctype="uint32_t", values=interleaved_words(rows, CHANNELS)),
        Array(suffix="rules", ctype="int32_t", values=rules),
    )
    numbers = {"pixels": pixels, "depth": depth, "channels": channels, "words": len(pairs)}
    numbers["rule_words"] = 1 + rule.store.words
    return Kernel(
        call="run_rows(&{layer}, {in0}, {out}, (uint32_t *)({scratch}));",
        how="SMLAD, a pixel by 4 channels" + rule.store.how,
        snippets=("requantise", "pairs", "widen_run", "rows"),
        texts=(row_code(rule.store),),
        arrays=arrays,
        struct="row_layer",
        fields=(
            *((key, str(value)) for key, value in numbers.items()),
            ("weights", "{layer}_weights"),
            ("rules", "{layer}_rules"),
            ("row", row_name(rule.store)),
        ),
        scratch_bytes=4 * len(pairs),
    )


def _blocks(operator: Convolution, network: Network, rule: Stored, scratch_bytes: int) -> Kernel:
    (_, _, depth), (height, width, channels) = images_of(operator, network)
    window, pixels = operator.window, height * width
    run = window.kernel[1] * depth
    pairs = widened_pairs(window.kernel[0], run)
    words = len(pairs)
    unroll = max(u for u in range(1, _MOST_UNROLL + 1) if words % u == 0)
    rows = byte_rows(operator.weights.reshape(channels, -1), pairs)
    even = channels - channels % 2
    weights = [interleaved_words(rows[:even], 2), interleaved_words(rows[even:], 1)]
    plain = window.kernel == (1, 1) == window.strides and depth % 4 == 0
    strip = _strip(pixels, 4 * words + (channels if operator.joined else 0), scratch_bytes)
    shapes = _shapes(pixels, strip, channels)
    codes = {key: block_code(*key, unroll, channels, rule.store) for key in shapes}
    names = [
        ", ".join(
            block_name(p, c, unroll, channels, rule.store) if (p, c) in codes else "0"
            for p in (1, 2, 3)
        )
        for c in (1, 2)
    ]
    numbers = {
        "pixels": pixels,
        "channels": channels,
        "words": words,
        "strip": strip,
        "plain_pixels": int(plain),
        "rule_words": 1 + rule.store.words,
        "spare_bytes": 0 if plain else padded(run),
        "adds": int(operator.joined is not None),
    }
    return Kernel(
        call="run_products(&{layer}, {in0}, "
        + ("{in1}" if operator.joined else "0")
        + ", {out}, (uint32_t *)({scratch}));",
        how="SMLAD, 3 pixels by 2 channels" + rule.store.how,
        snippets=(
            "requantise",
            "add_lines",
            "pairs",
            "widen",
            "widen_run",
            "patch_layer",
            "patches",
            "products",
        ),
        texts=tuple(codes.values()),
        arrays=(
            Array(suffix="weights", ctype="uint32_t", values=np.concatenate(weights)),
            Array(suffix="rules", ctype="int32_t", values=_rules(rule)),
        ),
        struct="product_layer",
        fields=(
            ("patch", patch_fields(operator, network)),
            *((key, str(value)) for key, value in numbers.items()),
            ("sum", sum_fields(operator.joined)),
            ("weights", "{layer}_weights"),
            ("rules", "{layer}_rules"),
            ("blocks", "{{{{" + "}}, {{".join(names) + "}}}}"),
        ),
        scratch_bytes=4 * words * (2 + strip)
        + numbers["spare_bytes"]
        + (strip * channels if operator.joined else 0),
        gap_bytes=_gap(operator, pixels, strip),
        gap_source=1 if operator.joined else None,
    )


def covers(operator: Convolution, network: Network) -> bool:
    """Whether `run_products` computes a convolution, and so could add to it."""
    try:
        return product_kernel(operator, network, 0).struct == "product_layer"
    except NotImplementedError:
        return False


def patch_fields(operator: Convolution, network: Network) -> str:
    """The struct `patch_layer` of a convolution."""
    (in_height, in_width, depth), (_, width, _) = images_of(operator, network)
    window = operator.window
    patch = {
        "in_height": in_height,
        "in_width": in_width,
        "depth": depth,
        "kernel_height": window.kernel[0],
        "kernel_width": window.kernel[1],
        "stride_y": window.strides[0],
        "stride_x": window.strides[1],
        "dilation_y": window.dilations[0],
        "dilation_x": window.dilations[1],
        "top": window.top,
        "left": window.left,
        "out_width": width,
        "zero": operator.zero_in,
    }
    return _struct(patch)


def sum_fields(joined: Sum | None) -> str:
    """The struct `line_layer` of the sum that a convolution takes, if it does."""
    if joined is None:
        return "{{0}}"
    bounds = {"low": joined.requantise.low, "high": joined.requantise.high}
    return _struct({**asdict(sum_product(joined)), **bounds})


def _struct(numbers: Mapping[str, int]) -> str:
    return "{{" + ", ".join(f".{key} = {value}" for key, value in numbers.items()) + "}}"


def _strip(pixels: int, pixel_bytes: int, scratch_bytes: int) -> int:
    """How many pixels are widened at once: weights are widened anew for each strip."""
    most = scratch_bytes // pixel_bytes - 2
    return max(3, min(most, _MOST_STRIP, padded(pixels, 3)) // 3 * 3)


def _gap(operator: Convolution, pixels: int, strip: int) -> int | None:
    """How far before the input the output has to begin: a strip is read before it is written.

    A sum is written over its other operand, each number where it was read.
    """
    if operator.joined is not None:
        return 0
    if not operator.window.kernel == (1, 1) == operator.window.strides:
        return None
    channels, _, _, depth = operator.weights.shape
    return max(0, (pixels - 1) // strip * strip * (channels - depth))


def _shapes(pixels: int, strip: int, channels: int) -> list[tuple[int, int]]:
    """(pixels, channels) of the functions that a layer needs."""
    counts = {min(strip, pixels), pixels % strip}
    groups = {3 for count in counts if count >= 3} | {count % 3 for count in counts} - {0}
    widths = ({2} if channels > 1 else set()) | ({1} if channels % 2 else set())
    return [(p, c) for p in sorted(groups) for c in sorted(widths)]


def _rules(rule: Stored) -> np.ndarray:
    """For two channels at a time: their biases, then the constants of each."""
    found: list[int] = []
    for first in range(0, len(rule.bias), 2):
        found += rule.bias[first : first + 2].tolist()
        found += rule.constants[first : first + 2].reshape(-1).tolist()
    return np.array(found, np.int64)
