"""Depthwise 3x3, one channel: a row or two rows of results from pairs of rows in words.

The weights of a column are two words: of the first and second row, and of the second and third.
A lower row of results needs the upper half of the upper pair, and the whole of the lower one.
"""

from __future__ import annotations

from adrenoc.mcu.dsp.assembly import Store, function

_WEIGHTS = (("r3", "r4"), ("r5", "r6"), ("r7", "r8"))
_BIAS = "r9"
_SUMS = ("r10", "r11")
_DATA = ("r12", "lr")
_MOST_STEP = 255
_MOST_UNROLL = 5


def depthwise_name(
    rows: int, first: int, width: int, step: int, channels: int, store: Store
) -> str:
    """The name of the function of `depthwise_code`."""
    return f"depthwise_{rows}{'ab'[first]}_w{width}_s{step}_c{channels}_{store.name}"


def depthwise_code(
    rows: int, first: int, width: int, step: int, channels: int, store: Store
) -> str:
    """A function for `rows` rows of `width` results, `step` columns apart.

    `first`: which of the two words of a column holds the upper pair of rows.  `rule` has six
    weights, the bias and the constants.
    """
    unroll = max(u for u in range(1, _MOST_UNROLL + 1) if width % u == 0)
    constants = [f"r{10 + n}" for n in range(store.words)]
    listed = "{" + ", ".join(constants) + "}"
    lines = ["push {r4-r11, lr}", "ldmia r2!, {r3-r9}", f"ldmia r2, {listed}", f"push {listed}"]
    if width > unroll:
        lines += [f"movw r2, #{8 * step * width}", "add r2, r2, r0", "1:"]
    for _ in range(unroll):
        lines += _column(rows, first, step)
        lines += store.scaled(_SUMS[:rows], _DATA, 0)
        if rows == 2:
            lines.append(f"strb r11, [r1, #{width * channels}]")
        if channels <= _MOST_STEP:
            lines.append(f"strb r10, [r1], #{channels}")
        else:
            lines += ["strb r10, [r1]", f"add r1, r1, #{channels}"]
    if width > unroll:
        lines += ["cmp r0, r2", "bne 1b"]
    lines += [f"add sp, sp, #{4 * store.words}", "pop {r4-r11, pc}"]
    name = depthwise_name(rows, first, width, step, channels, store)
    signature = f"{name}(const uint32_t *plane, int8_t *out, const int32_t *rule)"
    return function(signature, lines, _twin(rows, first, width, step, channels, store))


def _column(rows: int, first: int, step: int) -> list[str]:
    """The sums of one or two results, and the pointer to where the next ones begin."""
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
    lines += ["    }", f"    out[0] = {store.in_c('upper', 'rule + 7')};"]
    if rows == 2:
        lines.append(f"    out[{width * channels}] = {store.in_c('lower', 'rule + 7')};")
    return "\n".join([*lines, "  }", "}"])
