"""Convolutions of any window, and dense layers, as products of rows and tiles of channels."""

from __future__ import annotations

import numpy as np

from adrenoc.firmware.mcu.dsp.products import patch_fields
from adrenoc.firmware.mcu.kernel import Array, Kernel
from adrenoc.firmware.mcu.neon.product_code import CHANNELS, ROWS, WAYS, ProductTile
from adrenoc.firmware.mcu.neon.store import Stored, pack_constants
from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.operators import Convolution
from adrenoc.firmware.mcu.plain import images_of

BLOCK = 8
"""Bytes of each channel that lie side by side."""
MOST_THREADS = 8
"""The most threads, as c/environment.c has it."""
_STRIP_BYTES = 16 << 10
_MOST_STRIP = 16 * ROWS


def neon_products(operator: Convolution, network: Network) -> Kernel:
    """Return the kernel of a convolution or a dense layer.

    Raises:
        RefusedError: its rule is not covered.
    """
    if operator.joined is not None:
        raise TypeError("a sum was given to a convolution that has no place for it")
    rule = pack_constants(operator)
    (_, _, depth), (height, width, channels) = images_of(operator, network)
    pixels, taps = height * width, operator.weights[0].size
    blocks = -(-taps // BLOCK)
    side_by_side = operator.window.kernel == (1, 1) == operator.window.strides
    gathered = not (side_by_side and depth % BLOCK == 0)
    strip = _strip(pixels, blocks * BLOCK)
    careful = bool((operator.weights == -128).any())
    tiles = {
        (way, count): ProductTile(
            way=way, channels=count, store=rule.store, careful=careful and way == "neon"
        )
        for way in WAYS
        for count in ({CHANNELS} if channels >= CHANNELS else set()) | ({channels % CHANNELS} - {0})
    }
    names = [
        ", ".join(
            f"ARM_CODE({tiles[way, count].name})" if (way, count) in tiles else "0"
            for count in (CHANNELS, channels % CHANNELS)
        )
        for way in WAYS
    ]
    numbers = {
        "pixels": pixels,
        "channels": channels,
        "blocks": blocks,
        "strip": strip,
        "gathered": int(gathered),
    }
    return Kernel(
        call="run_neon_products(environment, &{layer}, {in0}, {out}, {scratch});",
        how=f"tiles of {ROWS} pixels by {CHANNELS} channels{rule.store.how}",
        snippets=(
            *("requantise", "environment", "neon_runs", "patch_layer", "byte_patches"),
            *("neon_store", "neon_products"),
        ),
        texts=tuple(tile.code() for tile in tiles.values()),
        arrays=(
            Array(suffix="weights", ctype="int8_t", values=_weights(operator, blocks)),
            Array(suffix="constants", ctype="int32_t", values=tile_constants(rule)),
        ),
        struct="neon_layer",
        fields=(
            ("patch", patch_fields(operator, network)),
            *((key, str(value)) for key, value in numbers.items()),
            *rule.store.fields,
            ("weights", "{layer}_weights"),
            ("constants", "{layer}_constants"),
            ("tiles", "{{{{" + "}}, {{".join(names) + "}}}}"),
        ),
        scratch_bytes=MOST_THREADS * strip * blocks * BLOCK if gathered else 0,
    )


def _strip(pixels: int, row_bytes: int) -> int:
    """Return how many pixels go through all channels before the next: as many as a cache keeps."""
    most = max(ROWS, min(_STRIP_BYTES // row_bytes, _MOST_STRIP) // ROWS * ROWS)
    return min(most, -(-pixels // ROWS) * ROWS)


def _weights(operator: Convolution, blocks: int) -> np.ndarray:
    """Tiles of sixteen channels; in each, blocks of eight bytes, of all channels side by side."""
    rows = operator.weights.reshape(operator.weights.shape[0], -1)
    tiles = -(-len(rows) // CHANNELS)
    grown = np.zeros((tiles * CHANNELS, blocks * BLOCK), np.int8)
    grown[: len(rows), : rows.shape[1]] = rows
    return grown.reshape(tiles, CHANNELS, blocks, BLOCK).transpose(0, 2, 1, 3)


def tile_constants(rule: Stored) -> np.ndarray:
    """Return the constants of each tile: biases and constants of sixteen channels, then of pairs of
    them, twice."""
    bias, constants = rule.pad_channels(CHANNELS)
    tiles = len(bias) // CHANNELS
    twice = np.tile(bias.reshape(tiles, CHANNELS // 2, 1, 2), (1, 1, 2, 1))
    if rule.store.kind == "double":
        # Two numbers of two words each, before both pixels.
        halves = constants.reshape(tiles, CHANNELS // 2, 1, 4)
        pairs = np.tile(halves, (1, 1, 2, 1))
    else:
        fours = constants.reshape(tiles, CHANNELS // 4, 2, 2, 1, 2)
        pairs = np.tile(fours.transpose(0, 1, 3, 2, 4, 5), (1, 1, 1, 1, 2, 1))
    parts = (bias, constants, twice, pairs)
    return np.concatenate([part.reshape(tiles, -1) for part in parts], 1)
