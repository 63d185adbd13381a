"""Depthwise convolutions of up to 3x3 by strips over their own input, by the vector extension."""

from __future__ import annotations

from functools import partial

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.dsp.constants import Stored, pack_constants
from adrenoc.firmware.mcu.dsp.depthwise import count_strips
from adrenoc.firmware.mcu.kernel import Array, Kernel
from adrenoc.firmware.mcu.mve.depthwise_code import WINDOW_WORDS, VectorStrip, vector_strip
from adrenoc.firmware.mcu.mve.vector_store import VectorStore, vector_constants
from adrenoc.firmware.mcu.network import Network, image_extents
from adrenoc.firmware.mcu.operators import Depthwise
from adrenoc.firmware.mcu.schedule import Choice

_GROUP = 8
_MOST_STEP = 16
_MOST_OFFSET = 4095
"""That an instruction adds to an address."""
_MOST_PLACE = (1 << 16) - 1
"""In bytes, of what is scattered."""


def vector_depthwise_choices(operator: Depthwise, network: Network) -> list[Choice]:
    """Return the only schedule of a depthwise convolution.

    Raises:
        RefusedError: its window, shape or rule is not covered.
    """
    window = operator.window
    _, _, _, depth = network.shape4(operator.source)
    _, _, out_width, channels = network.shape4(operator.result)
    if max(window.kernel) > 3 or window.dilations != (1, 1):
        raise RefusedError(f"a window of {window.kernel}, dilated {window.dilations}")
    if depth != channels:
        raise RefusedError(f"{channels} channels of {depth}")
    if window.strides[0] > 2 or window.strides[1] > _MOST_STEP:
        raise RefusedError(f"strides of {list(window.strides)}")
    columns = _columns(operator, network)
    if 4 * columns > _MOST_OFFSET or 4 * channels > _MOST_OFFSET:
        raise RefusedError(f"rows of {columns} pixels, or {channels} channels")
    if (out_width + 1) * channels * 2 > _MOST_PLACE:
        raise RefusedError(f"rows of {out_width * channels} bytes")
    make = partial(_kernel, operator, network, pack_constants(operator))
    scratch_bytes = 4 * _GROUP * columns
    actions = {"way": "vectors"}
    return [Choice(actions=actions, instructions=0, scratch_bytes=scratch_bytes, make=make)]


def _columns(operator: Depthwise, network: Network) -> int:
    """Pixels of a plane, its border included."""
    _, _, width, _ = network.shape4(operator.source)
    _, _, out_width, _ = network.shape4(operator.result)
    step = operator.window.strides[1]
    return max((-(-out_width // 4) * 4 - 1) * step + 4, operator.window.left + width)


def _kernel(operator: Depthwise, network: Network, rule: Stored) -> Kernel:
    window = operator.window
    _, out_height, out_width, channels = network.shape4(operator.result)
    step, rows = window.strides[1], 2 if window.strides[0] == 1 else 1
    store = VectorStore(store=rule.store)
    columns = _columns(operator, network)
    strips = {
        (parity, count): VectorStrip(
            rows=count,
            parity=parity,
            width=out_width,
            step=step,
            channels=channels,
            columns=columns,
            store=store,
        )
        for parity, count in sorted(count_strips(out_height, rows))
    }
    names = [
        ", ".join(strips[parity, n].name if (parity, n) in strips else "0" for n in (1, 2))
        for parity in (0, 1)
    ]
    numbers = {
        **image_extents(operator, network),
        "rows": rows,
        "top": operator.window.top,
        "left": operator.window.left,
        "columns": columns,
        "zero": operator.zero_in,
        "rule_words": WINDOW_WORDS + store.rows,
    }
    return Kernel(
        call="run_vector_depthwise(&{layer}, {in0}, {out}, (uint32_t *)({scratch}));",
        how=f"vectors, strips of {rows} row{'s' * (rows - 1)}" + rule.store.how,
        snippets=("requantise", "vectors", "vector_depthwise"),
        texts=tuple(vector_strip(strip) for strip in strips.values()),
        arrays=(Array(suffix="rules", ctype="int32_t", values=_rules(operator, rule)),),
        struct="vector_depthwise_layer",
        fields=(
            *((key, str(value)) for key, value in numbers.items()),
            ("rules", "{layer}_rules"),
            ("code", "{{{{" + "}}, {{".join(names) + "}}}}"),
        ),
        scratch_bytes=4 * _GROUP * columns,
        in_place=True,
    )


def _rules(operator: Depthwise, rule: Stored) -> np.ndarray:
    """Of each channel: a zero, three columns of weights as words, a zero, then constants."""
    height, width, channels = operator.weights.shape
    taps = np.zeros((3, 3, channels), np.int64)
    taps[:height, :width] = operator.weights.astype(np.int64) & 0xFF
    words = (taps[0] | taps[1] << 8 | taps[2] << 16).T
    none = np.zeros((channels, 1), np.int64)
    return np.concatenate([none, words, none, vector_constants(rule, 1)], 1)
