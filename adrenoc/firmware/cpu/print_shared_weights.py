"""Shared weights as C: room for weights, and the function that fills it as a library is loaded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from adrenoc.firmware.cpu.shared_weights import SharedWeight, find_weight_sources
from adrenoc.firmware.mcu.neon.products import BLOCK
from adrenoc.firmware.mcu.program import Program
from adrenoc.ir.places import MOST_DIGITS

ALIGN = 64
"""The alignment of each constant, in bytes: vectors may read a little beyond its end."""
_BORROW = Path(__file__).parent / "c" / "borrow.c"


def names_of(shared: Sequence[SharedWeight]) -> set[str]:
    """Return the names of the constants that are lent."""
    return {f"{weight.step}_weights" for weight in shared}


def room_lines(program: Program, shared: Sequence[SharedWeight]) -> list[str]:
    """Room for the weights that are lent, each under its name."""
    lent = names_of(shared)
    lines, at = [], 0
    for step in program.steps:
        for array in step.kernel.arrays:
            name = f"{step.name}_{array.suffix}"
            if name in lent:
                lines.append(f"#define {name} (model_borrowed + {at})")
                at += array.size_bytes + -array.size_bytes % ALIGN
    room = f"static int8_t model_borrowed[{at}] __attribute__((aligned({ALIGN})));"
    return [room, *lines] if lines else []


def filling_lines(shared: Sequence[SharedWeight]) -> list[str]:
    """Return the function that fills that room from all sources in their order, if any."""
    if not shared:
        return []
    names = list(find_weight_sources(shared))
    channels, rows = [], []
    for weight in shared:
        held, left = weight.held, []
        for kind, numbers in (("outputs", weight.outputs), ("inputs", weight.inputs)):
            left.append(f"{weight.step}_{kind}" if numbers else "0")
            if numbers:
                listed = ", ".join(map(str, numbers))
                channels.append(f"static const int32_t {left[-1]}[] = {{{listed}}};")
        digits = ", ".join(
            "{" + ", ".join(f"{{{radix}, {stride}}}" for radix, stride in axis) + "}"
            for axis in held.digits
        )
        counts = ", ".join(map(str, weight.counts))
        blocks = -(-math.prod(weight.counts[1:]) // BLOCK)
        where = f"{weight.step}_weights, {names.index(held.param)}, {held.width}"
        end = f"{held.first}, {', '.join(left)}"
        rows.append(f"    {{{where}, {{{counts}}}, {blocks}, {{{digits}}}, {end}}},")
    return [
        f"#define MODEL_MOST_DIGITS {MOST_DIGITS}",
        _BORROW.read_text(encoding="utf-8"),
        *channels,
        f"static const shared_weight_t model_shared_weights[{len(shared)}] = {{",
        *rows,
        "};",
        "static void model_borrow(const void *const *params) {",
        f"  for (int32_t i = 0; i < {len(shared)}; ++i)",
        "    borrow(&model_shared_weights[i], params[model_shared_weights[i].param]);",
        "}",
    ]
