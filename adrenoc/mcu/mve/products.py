"""Convolutions of any window as products of bytes by the vector extension."""

from __future__ import annotations

import numpy as np

from adrenoc.mcu.dsp.constants import stored
from adrenoc.mcu.dsp.products import patch_fields, sum_fields
from adrenoc.mcu.kernel import Array, Kernel
from adrenoc.mcu.mve.vector_code import STEP, VectorBlock, vector_code
from adrenoc.mcu.mve.vector_store import LANES, VectorStore, grouped, vector_constants
from adrenoc.mcu.network import Convolution, Network
from adrenoc.mcu.plain import images_of

_MOST_STRIP = 16
_MOST_OFFSET = 4095
"""That an instruction adds to an address."""


def vector_kernel(operator: Convolution, network: Network, scratch_bytes: int) -> Kernel:
    """The kernel of a convolution or a dense layer; it may take about `scratch_bytes`.

    Raises:
        NotImplementedError: its rule or its shape is not covered.
    """
    rule = stored(operator)
    (_, _, depth), (height, width, channels) = images_of(operator, network)
    pixels, taps = height * width, operator.weights[0].size
    steps = -(-taps // STEP)
    reach = steps * STEP
    if max(2 * max(reach, depth), 2 * channels) > _MOST_OFFSET:
        raise NotImplementedError(f"pixels of {reach} bytes, or {channels} channels")
    pairs = pixels > 1
    direct = _direct(operator, pixels, depth, reach)
    adds = operator.joined is not None
    strip = _strip(pixels, reach + (channels if adds else 0), scratch_bytes)
    gathered = direct < pixels
    # By whether pixels are gathered, and whether they are single ones at the end.
    wanted = {
        (way, single)
        for way, count in ((0, direct), (1, pixels - direct))
        for single in (0, 1)
        if (single and pairs and count % 2) or (not single and count >= 1 + pairs)
    }
    blocks = {
        (way, single): VectorBlock(
            pixels=2 if pairs and not single else 1,
            groups=1 if pairs else 2,
            steps=steps,
            stride=reach if way else depth,
            channels=channels,
            store=VectorStore(store=rule.store),
        )
        for way, single in sorted(wanted)
    }
    codes = {key: vector_code(block) for key, block in blocks.items()}
    names = [
        ", ".join(blocks[way, single].name if (way, single) in blocks else "0" for single in (0, 1))
        for way in (0, 1)
    ]
    multiple = LANES if pairs else 2 * LANES
    numbers = {
        "pixels": pixels,
        "channels": channels,
        "bytes": reach,
        "strip": strip,
        "direct": direct,
        "adds": int(adds),
        "group": 2 if pairs else 1,
    }
    rules = grouped(vector_constants(rule, multiple))
    return Kernel(
        call="run_vectors(&{layer}, {in0}, "
        + ("{in1}" if adds else "0")
        + ", {out}, (int8_t *)({scratch}));",
        how=f"vectors, {'2 pixels by 4' if pairs else 'a pixel by 8'} channels{rule.store.how}",
        snippets=(
            "requantise",
            "add_lines",
            "vectors",
            "patch_layer",
            "byte_patches",
            "vector_products",
        ),
        texts=tuple(codes.values()),
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
        scratch_bytes=strip * ((reach if gathered else 0) + (channels if adds else 0)),
        gap_bytes=_gap(operator, pixels),
        gap_source=1 if adds else None,
    )


def _direct(operator: Convolution, pixels: int, depth: int, reach: int) -> int:
    """How many pixels may be read where they lie, in whole vectors."""
    if not operator.window.kernel == (1, 1) == operator.window.strides:
        return 0
    safe = max(0, (pixels * depth - reach) // depth + 1)
    return pixels if safe >= pixels else safe // 2 * 2


def _strip(pixels: int, pixel_bytes: int, scratch_bytes: int) -> int:
    """How many pixels are gathered at once: pairs of them, or the only one."""
    most = min(scratch_bytes // pixel_bytes, _MOST_STRIP, pixels)
    return max(min(2, pixels), most // 2 * 2)


def _gap(operator: Convolution, pixels: int) -> int | None:
    """How far before the input the output has to begin: two pixels are read, then written."""
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
