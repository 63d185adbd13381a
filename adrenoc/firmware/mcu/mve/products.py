"""Convolutions of any window as products of bytes by the vector extension."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.dsp.constants import Stored, pack_constants
from adrenoc.firmware.mcu.dsp.products import patch_fields, sum_fields
from adrenoc.firmware.mcu.kernel import Array, Kernel
from adrenoc.firmware.mcu.mve.vector_code import STEP, VectorBlock, vector_code
from adrenoc.firmware.mcu.mve.vector_store import (
    LANES,
    VectorStore,
    group_by_four,
    vector_constants,
)
from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.operators import Convolution
from adrenoc.firmware.mcu.plain import images_of
from adrenoc.firmware.mcu.schedule import Choice, strips_of

_SNIPPETS = (
    *("requantise", "add_lines", "vectors"),
    *("patch_layer", "byte_patches", "vector_products"),
)
_MOST_OFFSET = 4095
"""That an instruction adds to an address."""
_LAYER, _STRIP, _PIXEL, _GATHERED_BYTE, _CHANNEL_STEP, _ADDED = 80, 60, 60, 0.35, 8, 10
"""Instructions as gcc makes them: of a layer, a strip, a pixel that is gathered and each byte of
it, of a step of channels beside its products, and of a byte of a sum."""


@dataclass(frozen=True, kw_only=True)
class _Vectors:
    """A schedule: pixels in registers (two by four channels, or one by eight) and in a strip."""

    pixels: int
    strip: int

    @property
    def groups(self) -> int:
        """Of four channels."""
        return 1 if self.pixels == 2 else 2


def vector_choices(operator: Convolution, network: Network) -> list[Choice]:
    """Return the schedules of a convolution or a dense layer.

    Raises:
        RefusedError: its rule or its shape is not covered.
    """
    rule = pack_constants(operator)
    (_, _, depth), (height, width, channels) = images_of(operator, network)
    pixels, taps = height * width, operator.weights[0].size
    reach = -(-taps // STEP) * STEP
    if max(2 * max(reach, depth), 2 * channels) > _MOST_OFFSET:
        raise RefusedError(f"pixels of {reach} bytes, or {channels} channels")
    whole = _direct(operator, pixels, depth, reach) == pixels and operator.joined is None
    found = []
    for tile in (2, 1) if pixels > 1 else (1,):
        strips = (min(2, pixels),) if whole else strips_of(pixels, min(2, pixels))
        for vectors in (_Vectors(pixels=tile, strip=strip) for strip in strips):
            found.append(
                Choice(
                    actions={"way": "vectors", "pixels": tile, "strip": vectors.strip},
                    instructions=_estimate(operator, network, rule, vectors),
                    scratch_bytes=_scratch(operator, network, vectors),
                    make=partial(_kernel, operator, network, rule, vectors),
                )
            )
    return found


def _scratch(operator: Convolution, network: Network, vectors: _Vectors) -> int:
    (_, _, depth), (height, width, channels) = images_of(operator, network)
    pixels = height * width
    reach = -(-operator.weights[0].size // STEP) * STEP
    gathered = _direct(operator, pixels, depth, reach) < pixels
    return vectors.strip * ((reach if gathered else 0) + (channels if operator.joined else 0))


def _estimate(operator: Convolution, network: Network, rule: Stored, vectors: _Vectors) -> float:
    """Instructions by the cost model: the products are counted, the code around them is fitted."""
    (_, _, depth), (height, width, channels) = images_of(operator, network)
    pixels = height * width
    reach = -(-operator.weights[0].size // STEP) * STEP
    gathered = pixels - _direct(operator, pixels, depth, reach)
    total = _LAYER + gathered * (_PIXEL + _GATHERED_BYTE * reach)
    if gathered or operator.joined:
        total += -(-pixels // vectors.strip) * _STRIP
    if operator.joined:
        total += _ADDED * pixels * channels
    for count, times in ((vectors.pixels, pixels // vectors.pixels), (1, pixels % vectors.pixels)):
        block = _block(operator, rule, vectors, count, depth)
        channel_steps = -(-channels // (LANES * block.groups))
        total += times * (_CHANNEL_STEP + channel_steps * (_CHANNEL_STEP + block.step_instructions))
    return total


def _block(
    operator: Convolution, rule: Stored, vectors: _Vectors, pixels: int, stride: int
) -> VectorBlock:
    return VectorBlock(
        pixels=pixels,
        groups=vectors.groups,
        steps=-(-operator.weights[0].size // STEP),
        stride=stride,
        channels=operator.weights.shape[0],
        store=VectorStore(store=rule.store),
    )


def _kernel(operator: Convolution, network: Network, rule: Stored, vectors: _Vectors) -> Kernel:
    (_, _, depth), (height, width, channels) = images_of(operator, network)
    pixels, group = height * width, vectors.pixels
    steps = -(-operator.weights[0].size // STEP)
    reach = steps * STEP
    direct = _direct(operator, pixels, depth, reach)
    adds = operator.joined is not None
    blocks = _blocks(operator, rule, vectors, (direct, pixels - direct), (depth, reach))
    names = [
        ", ".join(blocks[way, single].name if (way, single) in blocks else "0" for single in (0, 1))
        for way in (0, 1)
    ]
    multiple = LANES * vectors.groups
    numbers = {
        "pixels": pixels,
        "channels": channels,
        "bytes": reach,
        "strip": vectors.strip,
        "direct": direct,
        "adds": int(adds),
        "group": group,
    }
    rules = group_by_four(vector_constants(rule, multiple))
    return Kernel(
        call="run_vectors(&{layer}, {in0}, "
        + ("{in1}" if adds else "0")
        + ", {out}, (int8_t *)({scratch}));",
        how=f"vectors, {'2 pixels by 4' if group == 2 else 'a pixel by 8'} channels"
        + rule.store.how,
        snippets=_SNIPPETS,
        texts=tuple(map(vector_code, blocks.values())),
        arrays=(
            Array(suffix="weights", ctype="int8_t", values=_weights(operator, steps, multiple)),
            Array(suffix="rules", ctype="int32_t", values=rules),
        ),
        struct="vector_layer",
        fields=(
            ("patch", patch_fields(operator, network)),
            *((key, str(value)) for key, value in numbers.items()),
            ("sum", sum_fields(operator.joined)),
            ("weights", "{layer}_weights"),
            ("rules", "{layer}_rules"),
            ("rules_end", f"{{layer}}_rules + {len(rules)}"),
            ("code", "{{{{" + "}}, {{".join(names) + "}}}}"),
        ),
        scratch_bytes=_scratch(operator, network, vectors),
        gap_bytes=_gap(operator, pixels),
        gap_source=1 if adds else None,
    )


def _blocks(
    operator: Convolution,
    rule: Stored,
    vectors: _Vectors,
    counts: tuple[int, int],
    strides: tuple[int, int],
) -> dict[tuple[int, int], VectorBlock]:
    """Return the functions that are needed, by (whether pixels are gathered, whether single ones).

    `counts` are the pixels that are read where they lie, and those that are gathered; `strides` are
    the bytes from one such pixel to the next.
    """
    group = vectors.pixels
    return {
        (way, single): _block(operator, rule, vectors, 1 if single else group, strides[way])
        for way, count in enumerate(counts)
        for single in (0, 1)
        if (single and count % group) or (not single and count >= group)
    }


def _direct(operator: Convolution, pixels: int, depth: int, reach: int) -> int:
    """Return how many pixels may be read where they lie, in whole vectors."""
    if not operator.window.kernel == (1, 1) == operator.window.strides:
        return 0
    safe = max(0, (pixels * depth - reach) // depth + 1)
    return pixels if safe >= pixels else safe // 2 * 2


def _gap(operator: Convolution, pixels: int) -> int | None:
    """Return how far before the input the output has to begin: two pixels are read, then
    written."""
    if operator.joined is not None:
        return 0
    if not operator.window.kernel == (1, 1) == operator.window.strides:
        return None
    channels, _, _, depth = operator.weights.shape
    return max(2 * channels, pixels * channels - (pixels - 2) * depth)


def _weights(operator: Convolution, steps: int, multiple: int) -> np.ndarray:
    """For each group of four channels: sixteen bytes of each, then the next sixteen ..."""
    rows = operator.weights.reshape(operator.weights.shape[0], -1)
    grown = np.zeros((-(-len(rows) // multiple) * multiple, steps * STEP), np.int8)
    grown[: len(rows), : rows.shape[1]] = rows
    return grown.reshape(-1, LANES, steps, STEP).transpose(0, 2, 1, 3)
