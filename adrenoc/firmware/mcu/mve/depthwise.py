"""Depthwise windows of up to 3x3 by strips over their own input, by the vector extension.

Results are dot products.  Four rows of a column are the bytes of a word, so that sixteen bytes are
four rows by four columns: two by two results of stride one, each by a vector of weights that has
zeros where its window is not.  Pairs of rows take turns in being the upper one.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu.dsp.assembly import DspConstants, function, pack_constants
from adrenoc.firmware.mcu.dsp.depthwise import count_strips, strip_kernel
from adrenoc.firmware.mcu.fixed_point import INT8
from adrenoc.firmware.mcu.kernel import Choice, FirmwareKernel
from adrenoc.firmware.mcu.mve.products import (
    GUARD,
    VectorStore,
    gather_registers,
    scale_by_float,
    vector_constants,
)
from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.operators import Depthwise

_GROUP = 8
_MOST_STEP = 16
_MOST_OFFSET = 4095
"""That an instruction adds to an address."""
_MOST_PLACE = (1 << 16) - 1
"""In bytes, of what is scattered."""


def vector_depthwise_choices(operator: Depthwise, network: Network) -> list[Choice]:
    """Return the only schedule of a depthwise convolution. Raises RefusedError where its window,
    shape or rule is not covered."""
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


def _kernel(operator: Depthwise, network: Network, rule: DspConstants) -> FirmwareKernel:
    window = operator.window
    _, out_height, out_width, channels = network.shape4(operator.result)
    rows, columns = 2 if window.strides[0] == 1 else 1, _columns(operator, network)
    store = VectorStore(store=rule.store)
    strips = {
        (parity, count): VectorStrip(
            rows=count,
            parity=parity,
            width=out_width,
            step=window.strides[1],
            channels=channels,
            columns=columns,
            store=store,
        )
        for parity, count in sorted(count_strips(out_height, rows))
    }
    return strip_kernel(
        operator,
        network,
        {key: strip.name for key, strip in strips.items()},
        columns,
        _rules(operator, rule),
        how="vectors, strips of {}" + rule.store.how,
        call="run_vector_depthwise(&{layer}, {in0}, {out}, (uint32_t *)({scratch}));",
        snippets=("requantise", "vectors", "vector_depthwise"),
        texts=tuple(map(vector_strip, strips.values())),
        struct="vector_depthwise_layer",
        scratch_bytes=4 * _GROUP * columns,
    )


def _rules(operator: Depthwise, rule: DspConstants) -> np.ndarray:
    """Return of each channel: a zero, three columns of weights as words, a zero, constants."""
    height, width, channels = operator.weights.shape
    taps = np.zeros((3, 3, channels), np.int64)
    taps[:height, :width] = operator.weights.astype(np.int64) & 0xFF
    words = (taps[0] | taps[1] << 8 | taps[2] << 16).T
    none = np.zeros((channels, 1), np.int64)
    return np.concatenate([none, words, none, vector_constants(rule, 1)], 1)


WINDOW_WORDS = 5
"""Three columns of weights, with a zero on either side."""
_SUMS = ("r4", "r6", "r8", "r10")
_WEIGHTS = {(0, 0): "q1", (0, 1): "q2", (1, 0): "q3", (1, 1): "q4"}
"""By row and column of the result."""
_MULTIPLIER, _PLACES, _SPARE = "q5", "q6", "q7"
_LANE_BITS = 4


@dataclass(frozen=True, kw_only=True)
class VectorStrip:
    """A function for a strip of `rows` rows of `width` results, `step` columns apart. `parity` is 1
    where the upper pair of rows is the upper part of each word; a plane has `columns` words."""

    rows: int
    parity: int
    width: int
    step: int
    channels: int
    columns: int
    store: VectorStore

    @property
    def name(self) -> str:
        """Return the name of the function."""
        return (
            f"strip_{self.rows}{'ab'[self.parity]}_w{self.width}_s{self.step}_c{self.channels}"
            f"_p{self.columns}_{self.store.store.name}"
        )

    @property
    def across(self) -> int:
        """Results of a row that are computed at once."""
        return 4 // self.rows

    @property
    def rule_words(self) -> int:
        """Weights, bias and constants of a channel."""
        return WINDOW_WORDS + self.store.rows


def vector_strip(strip: VectorStrip) -> str:
    """Return the function, for some channels whose planes lie one after the other."""
    lines = ["push {r4-r11, lr}", "vpush {d8-d15}", *_places(strip), "1:"]
    lines += _weights(strip)
    lines += ["ldr r5, [r2, #20]", "ldr r4, [r2, #24]", f"vdup.32 {_MULTIPLIER}, r4"]
    lines.append("ldr r7, [r2, #28]")
    if not strip.store.store.shift:
        lines.append("ldr r9, [r2, #32]")
    lines += [f"adds r2, #{4 * strip.rule_words}", "mov r12, r0", "mov r11, r1"]
    steps, rest = divmod(strip.width, strip.across)
    if steps > 1:
        lines += [f"movw r4, #{steps}", "dls lr, r4", "2:"]
    if steps:
        lines += [*_results(strip, strip.across), f"vstrb.32 q0, [r11, {_PLACES}]"]
    if steps and (steps > 1 or rest):
        lines.append(f"add r11, r11, #{strip.across * strip.channels}")
    if steps > 1:
        lines.append("le lr, 2b")
    if rest:
        lines += _results(strip, rest)
        lines += [f"movw r4, #{(1 << _LANE_BITS * rest * strip.rows) - 1}", "vmsr p0, r4"]
        lines += ["vpst", f"vstrbt.32 q0, [r11, {_PLACES}]"]
    lines += [f"add r0, r0, #{4 * strip.columns}", "adds r1, #1", "subs r3, #1", "bne 1b"]
    lines += ["vpop {d8-d15}", "pop {r4-r11, pc}"]
    signature = (
        f"{strip.name}(const uint32_t *planes, int8_t *out, const int32_t *rule, int32_t count)"
    )
    return function(signature, lines, _twin(strip), where=GUARD)


def _lanes(strip: VectorStrip, across: int) -> list[tuple[int, int]]:
    """Row and column of each result of a step of the loop."""
    return [(row, column) for column in range(across) for row in range(strip.rows)]


def _places(strip: VectorStrip) -> list[str]:
    """Return where the results of a step go, from the first one on."""
    lines = []
    for register, (row, column) in zip(_SUMS, _lanes(strip, strip.across), strict=True):
        place = (row * strip.width + column) * strip.channels
        lines.append(f"movw {register}, #{place}")
    return [*lines, *gather_registers(int(_PLACES[1:]), _SUMS)]


def _weights(strip: VectorStrip) -> list[str]:
    """Return the vectors of weights that results of a step need."""
    shifted = (0, 1) if strip.step == 1 else (0,)
    lines = []
    for column in shifted:
        upper, lower = _WEIGHTS[0, column], _WEIGHTS[1, column]
        lines.append(f"vldrw.u32 {upper}, [r2, #{4 - 4 * column}]")
        if strip.rows == 2:
            lines.append(f"vshl.i32 {lower}, {upper}, #8")
        if strip.parity:
            lines += [f"vrev32.16 {v}, {v}" for v in (upper, lower)[: strip.rows]]
    return lines


def _results(strip: VectorStrip, across: int) -> list[str]:
    """Sums of a step, and bytes of them."""
    moved = 4 * strip.across * strip.step
    shared = 2 if strip.step == 1 else 1
    lines, loaded = [], -1
    for register, (row, column) in zip(_SUMS, _lanes(strip, across), strict=False):
        first = column - column % shared
        if first != loaded:
            at = f"[r12, #{4 * first * strip.step - moved}]" if first else f"[r12], #{moved}"
            lines.append(f"vldrw.u32 q0, {at}")
            loaded = first
        lines.append(f"vmladav.s8 {register}, {_WEIGHTS[row, column - first]}, q0")
    return [*lines, *gather_registers(0, _SUMS), "vadd.i32 q0, q0, r5", *_scale_sums(strip.store)]


def _scale_sums(made: VectorStore) -> list[str]:
    store = made.store
    if store.single:
        lines = scale_by_float("q0", _MULTIPLIER)
        return [*lines, "vadd.i32 q0, q0, r7", *_clamp(store.low, store.high)]
    if store.shift is None:
        lines = [f"vqrdmulh.s32 q0, q0, {_MULTIPLIER}", f"vshr.s32 {_SPARE}, q0, #31"]
        lines.append(f"vadd.i32 q0, q0, {_SPARE}")
    else:
        lines = [f"vrmulh.s32 q0, q0, {_MULTIPLIER}"]
    lines.append("vadd.i32 q0, q0, r7")
    lines.append(f"vshr.s32 q0, q0, #{store.shift}" if store.shift else "vshl.s32 q0, r9")
    return lines + _clamp(store.low, store.high)


def _clamp(low: int, high: int) -> list[str]:
    """Return instructions after which the lowest byte of each lane is within the bounds."""
    if (low, high) == INT8:
        return ["vqmovnb.s32 q0, q0", "vqmovnb.s16 q0, q0"]
    lines = []
    for keep, bound in (("vmax.s32", low), ("vmin.s32", high)):
        lines += [f"mov r4, #{bound}", f"vdup.32 {_SPARE}, r4", f"{keep} q0, q0, {_SPARE}"]
    return lines


def _twin(strip: VectorStrip) -> str:
    word = f"planes[x * {strip.step} + i]"
    byte = f"8 * ((row + k) ^ {2 * strip.parity})"
    return (
        "{\n"
        f"  for (; count--; planes += {strip.columns}, rule += {strip.rule_words}, ++out)\n"
        f"    for (int32_t row = 0; row < {strip.rows}; ++row)\n"
        f"      for (int32_t x = 0; x < {strip.width}; ++x) {{\n"
        "        int32_t sum = 0;\n"
        "        for (int32_t i = 0; i < 3; ++i)\n"
        "          for (int32_t k = 0; k < 3; ++k)\n"
        f"            sum += (int8_t)({word} >> {byte}) *\n"
        "                   (int8_t)((uint32_t)rule[1 + i] >> 8 * k);\n"
        f"        out[(row * {strip.width} + x) * {strip.channels}] =\n"
        f"            {strip.store.print_c('sum', f'rule + {WINDOW_WORDS}', 1)};\n"
        "      }\n"
        "}"
    )
