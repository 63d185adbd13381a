"""Functions for 64-bit Arm as text: the same instructions whatever compiles the rest."""

from __future__ import annotations

from collections.abc import Iterable

_SAVED = ("d8, d9", "d10, d11", "d12, d13", "d14, d15")


def arm_function(name: str, signature: str, lines: Iterable[str], *, extension: str = "") -> str:
    """Return a function of that `signature`, a format of its name; low halves of v8 to v15 are
    kept.

    `extension` is what the assembler has to be told of: the code runs where a core has it.
    """
    save = [f"stp {pair}, [sp, #{16 * n}]" for n, pair in enumerate(_SAVED)]
    load = [f"ldp {pair}, [sp, #{16 * n}]" for n, pair in enumerate(_SAVED)]
    whole = [
        *([f".arch armv8.2-a+{extension}"] if extension else []),
        f".hidden {name}",
        f".globl {name}",
        f".type {name}, %function",
        ".p2align 4",
        f"{name}:",
        "sub sp, sp, #64",
        *save,
        *lines,
        *load,
        "add sp, sp, #64",
        "ret",
        f".size {name}, . - {name}",
    ]
    body = "\n".join(f'    "{line}\\n"' for line in whole)
    declared = f'__attribute__((visibility("hidden"))) extern {signature.format(name)};'
    text = f'__asm__(\n    ".text\\n"\n{body});'
    return f"#if defined(__aarch64__)\n{declared}\n{text}\n#endif\n"


def stores(register: str, pointer: str, count: int, step: str) -> list[str]:
    """Instructions that store the first `count` bytes of sixteen, and move on by `step` bytes."""
    if count == 16:
        return [f"st1 {{{register}.16b}}, [{pointer}], {step}"]
    lines, at = [], 0
    for size, letter in ((8, "d"), (4, "s"), (2, "h"), (1, "b")):
        if count - at >= size:
            place = pointer
            if at:
                place = "x8"
                lines.append(f"add x8, {pointer}, #{at}")
            lines.append(f"st1 {{{register}.{letter}}}[{at // size}], [{place}]")
            at += size
    return [*lines, f"add {pointer}, {pointer}, {step}"]
