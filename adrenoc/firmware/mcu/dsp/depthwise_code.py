"""Depthwise 3x3, one channel: a row or two rows of results from pairs of rows in words.

The weights of a column are two words: of the first and second row, and of the second and third.
A lower row of results needs the upper half of the upper pair, and the whole of the lower one.
"""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.firmware.mcu.dsp.assembly import Store, function

_WEIGHTS = (("r3", "r4"), ("r5", "r6"), ("r7", "r8"))
_BIAS = "r9"
_SUMS = ("r10", "r11")
_DATA = ("r12", "lr")
_MOST_STEP = 255
_MOST_UNROLL = 5


@dataclass(frozen=True, kw_only=True)
class Strip:
    """A function for `rows` rows of `width` results, `step` columns apart, `unroll` a round.

    `first`: which of the two words of a column holds the upper pair of rows.
    """

    rows: int
    first: int
    width: int
    step: int
    channels: int
    store: Store
    unroll: int

    @property
    def name(self) -> str:
        """The name of the function."""
        return (
            f"depthwise_{self.rows}{'ab'[self.first]}_w{self.width}_u{self.unroll}"
            f"_s{self.step}_c{self.channels}_{self.store.name}"
        )

    @property
    def instructions(self) -> int:
        """How many a call takes."""
        enter, inner, leave = map(len, _parts(self))
        return enter + self.width // self.unroll * inner + leave


def unrolls_of(width: int) -> tuple[int, ...]:
    """Return how many results a round of the loop may have, the most first."""
    return tuple(u for u in range(_MOST_UNROLL, 0, -1) if width % u == 0)


def depthwise_code(strip: Strip) -> str:
    """Return the function; `rule` has six weights, the bias and the constants."""
    lines = [line for part in _parts(strip) for line in part]
    if strip.width > strip.unroll:
        lines.insert(len(_parts(strip)[0]), "1:")
    signature = f"{strip.name}(const uint32_t *plane, int8_t *out, const int32_t *rule)"
    twin = _twin(strip.rows, strip.first, strip.width, strip.step, strip.channels, strip.store)
    return function(signature, lines, twin)


def _parts(strip: Strip) -> tuple[list[str], list[str], list[str]]:
    """Instructions before the loop, of a round of it, and after it."""
    store, channels = strip.store, strip.channels
    loops = strip.width > strip.unroll
    constants = [f"r{10 + n}" for n in range(store.words)]
    listed = "{" + ", ".join(constants) + "}"
    enter = ["push {r4-r11, lr}", "ldmia r2!, {r3-r9}", f"ldmia r2, {listed}", f"push {listed}"]
    if loops:
        enter += [f"movw r2, #{8 * strip.step * strip.width}", "add r2, r2, r0"]
    inner = []
    for _ in range(strip.unroll):
        inner += _column(strip.rows, strip.first, strip.step)
        inner += store.scale_sums(_SUMS[: strip.rows], _DATA, 0)
        if strip.rows == 2:
            inner.append(f"strb r11, [r1, #{strip.width * channels}]")
        if channels <= _MOST_STEP:
            inner.append(f"strb r10, [r1], #{channels}")
        else:
            inner += ["strb r10, [r1]", f"add r1, r1, #{channels}"]
    if loops:
        inner += ["cmp r0, r2", "bne 1b"]
    return enter, inner, [f"add sp, sp, #{4 * store.words}", "pop {r4-r11, pc}"]


def _column(rows: int, first: int, step: int) -> list[str]:
    """Return the sums of one or two results, and the pointer to where the next ones begin."""
    upper, lower = _DATA if first == 0 else _DATA[::-1]
    lines = []
    for column, (top, bottom) in enumerate(_WEIGHTS):
        place = f"[r0, #{8 * column}]" if column else "[r0]"
        if column == step and step < len(_WEIGHTS):
            place += "!"
        if column > step:
            place = f"[r0, #{8 * (column - step)}]"
        sums = [_BIAS] * rows if column == 0 else _SUMS
        lines.append(f"ldrd {_DATA[0]}, {_DATA[1]}, {place}")
        lines.append(f"smlad {_SUMS[0]}, {upper}, {top}, {sums[0]}")
        if rows == 2:
            lines.append(f"smlatb {_SUMS[1]}, {upper}, {top}, {sums[1]}")
        lines.append(f"smlabt {_SUMS[0]}, {lower}, {bottom}, {_SUMS[0]}")
        if rows == 2:
            lines.append(f"smlad {_SUMS[1]}, {lower}, {bottom}, {_SUMS[1]}")
    if step >= len(_WEIGHTS):
        lines.append(f"add r0, r0, #{8 * step}")
    return lines


def _twin(rows: int, first: int, width: int, step: int, channels: int, store: Store) -> str:
    lines = [
        "{",
        f"  for (int32_t x = 0; x < {width}; ++x, plane += {2 * step}, out += {channels}) {{",
        f"    int32_t {'upper = rule[6], lower' if rows == 2 else 'upper'} = rule[6];",
        "    for (int32_t i = 0; i < 6; i += 2) {",
        f"      const uint32_t a = plane[i + {first}], b = plane[i + {1 - first}];",
        "      const uint32_t top = (uint32_t)rule[i], bottom = (uint32_t)rule[i + 1];",
        "      upper = add_pair(add_pair(upper, a, top), b & 0xffffu, bottom >> 16);",
    ]
    if rows == 2:
        lines.append("      lower = add_pair(add_pair(lower, a >> 16, top & 0xffffu), b, bottom);")
    lines += ["    }", f"    out[0] = {store.print_c('upper', 'rule + 7')};"]
    if rows == 2:
        lines.append(f"    out[{width * channels}] = {store.print_c('lower', 'rule + 7')};")
    return "\n".join([*lines, "  }", "}"])
