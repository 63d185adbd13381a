"""Products of a few pixels, one at a time: dense layers."""

from __future__ import annotations

from functools import partial

import numpy as np

from adrenoc.firmware.mcu.dsp.constants import Stored
from adrenoc.firmware.mcu.dsp.packing import byte_rows, interleaved_words, wide_words, widened_pairs
from adrenoc.firmware.mcu.dsp.row_code import CHANNELS, Row, row_code
from adrenoc.firmware.mcu.kernel import Array, Kernel
from adrenoc.firmware.mcu.operators import Convolution
from adrenoc.firmware.mcu.schedule import Choice

_SNIPPETS = ("requantise", "pairs", "widen_run", "rows")
_UNROLLS = (1, 2, 4)
_LEAST_UNROLL = 2
"""Pixels are padded to whole rounds of so many words of bytes."""
_ENTRY = 30
"""Instructions of a pixel beside its products, as gcc makes them."""
_WIDENING = 2.25
"""Instructions a byte of a pixel."""


def row_choices(operator: Convolution, rule: Stored, pixels: int) -> list[Choice]:
    """Return the schedules of a window of 1x1, a pixel at a time."""
    channels, _, _, depth = operator.weights.shape
    groups = -(-channels // CHANNELS)
    found = []
    for unroll in _UNROLLS:
        pairs = widened_pairs(1, depth, 2 * _LEAST_UNROLL)
        if len(pairs) % (2 * unroll):
            continue
        for wide in (False, True):
            row = Row(unroll=unroll, wide=wide, store=rule.store)
            actions = {"way": "rows", "unroll": unroll, "weights": "words" if wide else "bytes"}
            found.append(
                Choice(
                    actions=actions,
                    instructions=pixels
                    * (_ENTRY + _WIDENING * depth + row.instructions(groups, len(pairs))),
                    scratch_bytes=4 * len(pairs),
                    make=partial(_kernel, operator, rule, row, pixels, pairs),
                    spare_bytes=2 * len(pairs) * groups * CHANNELS if wide else 0,
                )
            )
    return found


def _kernel(
    operator: Convolution, rule: Stored, row: Row, pixels: int, pairs: list[tuple[int, int]]
) -> Kernel:
    channels, _, _, depth = operator.weights.shape
    weights = operator.weights.reshape(channels, depth)
    words = wide_words(weights, pairs) if row.wide else byte_rows(weights, pairs)
    arrays = (
        Array(suffix="weights", ctype="uint32_t", values=interleaved_words(words, CHANNELS)),
        Array(suffix="rules", ctype="int32_t", values=_rules(rule, channels)),
    )
    numbers = {"pixels": pixels, "depth": depth, "channels": channels, "words": len(pairs)}
    numbers |= {
        "rule_words": 1 + rule.store.words,
        "weight_words": len(pairs) // (1 if row.wide else 2),
    }
    return Kernel(
        call="run_rows(&{layer}, {in0}, {out}, (uint32_t *)({scratch}));",
        how="SMLAD, a pixel by 4 channels" + rule.store.how,
        snippets=_SNIPPETS,
        texts=(row_code(row),),
        arrays=arrays,
        struct="row_layer",
        fields=(
            *((key, str(value)) for key, value in numbers.items()),
            ("weights", "{layer}_weights"),
            ("rules", "{layer}_rules"),
            ("row", row.name),
        ),
        scratch_bytes=4 * len(pairs),
    )


def _rules(rule: Stored, channels: int) -> np.ndarray:
    """For four channels at a time: their biases, then the constants of each."""
    missing = -channels % CHANNELS
    biases = np.concatenate([rule.bias, np.zeros(missing, np.int64)])
    constants = np.concatenate([rule.constants, np.zeros((missing, rule.store.words), np.int64)])
    rows = constants.reshape(-1, CHANNELS * rule.store.words)
    return np.concatenate([biases.reshape(-1, CHANNELS), rows], 1)
