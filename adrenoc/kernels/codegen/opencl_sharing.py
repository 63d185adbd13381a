"""Kernels that differ in constants alone run one program: the constants become arguments.

A driver takes as long for the second of two such kernels as for the first.  Numbers that differ
from kernel to kernel are lifted out of the text where that costs no time on the GPU: an argument
lies in a register of constants, as a number of the text does.

Before -> after:
    // Function: conv2d_0                   // Function: conv2d_0
    if (gx0 < 56) ... (G2 + 8) ...          // Constants: int 56, int 8
                                            if (gx0 < C0) ... (G2 + C1) ...
    // Function: conv2d_1                   // Function: conv2d_1
    if (gx0 < 28) ... (G2 + 16) ...         // Program: conv2d_0
                                            // Constants: int 28, int 16

What stays in the text is what compilers make something of: extents of arrays, indices of registers,
bounds of loops that are unrolled, divisors, offsets within local memory, the offset of a load.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from adrenoc.base.decision import Decision

PROGRAM = "// Program: "
"""Begins the line that names the kernel whose text is run."""
CONSTANTS = "// Constants: "
"""Begins the line with the arguments that are this kernel's alone: type and number, by commas."""

_FUNCTION = "// Function: "
_KERNEL = re.compile(r"__kernel void (\w+)\(([^{;]*)\) \{\n")
_NUMBER = re.compile(r"(?<![\w.])(?:\d+\.\d+(?:e[+-]?\d+)?f|\d+)(?![\w.])")
_LOOP = re.compile(r"\s*for \(int (\w+) = ")
_ARGUMENT = re.compile(r"\bC\d+\b")
_ROLLED = "rolled_"
_ARRAY = re.compile(r"\s*(__local )?\w+ (\w+)\[\d+\](?: __attribute__\(\(aligned\(\d+\)\)\))?;$")
_ITEM = re.compile(r"get_(?:group|local|global)_id\($")
_MACROS = (
    *("__attribute__", "ALWAYS(", "CONSTANTS(", "CONSTANT(", "MOST_WAVES("),
    *("MATRICES(", "NEW_SUM(", "LOAD_LEFT(", "LOAD_RIGHT(", "ADD_PRODUCT(", "STORE_SUM("),
)
"""Of a line that has such a word every number stays in the text."""
_MOST_CONSTANTS = 16
_INSTRUCTIONS_OF_A_MULTIPLICATION = 2
"""More than a shift by a constant takes: integers are multiplied in three steps."""
_MOST_INT, _WORDS = 2**31 - 1, 2**32
_LANES = 4
_LARGEST_LOSS = 0.02


@dataclass(frozen=True, kw_only=True)
class Shared:
    """A kernel as an instance of a program: `constants` are (type, number) pairs."""

    program: str
    constants: tuple[tuple[str, str], ...]
    text: str
    """OpenCL C of the program, with the constants as its last arguments."""


@dataclass(frozen=True)
class _Number:
    """A number of a text, and the innermost loop that it is in."""

    fixed: str
    """Why it stays; "" where it may become an argument."""
    loop: int
    is_factor: bool
    is_word: bool
    """It is cast to `uint`, so that of a larger number than an `int` holds the bits count alone."""


def share(texts: Mapping[str, str]) -> tuple[dict[str, Shared], list[Decision]]:
    """Return the program of each kernel, by kernel name; texts are those of `opencl_compact`.  A
    kernel that shares with none keeps its text and has no constants."""
    alike: dict[str, list[str]] = {}
    numbers: dict[str, tuple[str, ...]] = {}
    for name, text in texts.items():
        unnamed = _blank_name(text)
        numbers[name] = tuple(_NUMBER.findall(unnamed))
        alike.setdefault(_NUMBER.sub("#", unnamed), []).append(name)
    found: dict[str, Shared] = {}
    decisions: list[Decision] = []
    for names in alike.values():
        _share_alike(names, texts, numbers, found, decisions)
    return {name: found[name] for name in texts}, decisions


def section(name: str, shared: Shared) -> str:
    """Return what the set of kernels says of one: its program, and the text if that is its own."""
    constants = ", ".join(f"{kind} {number}" for kind, number in shared.constants)
    said = f"{PROGRAM}{shared.program}\n" if shared.program != name else ""
    said += f"{CONSTANTS}{constants}\n" if constants else ""
    return said + (shared.text if shared.program == name else "")


def read_programs(text: str) -> dict[str, Shared]:
    """Return the kernels of a set, from its text: each begins with a line "// Function: NAME"."""
    parts = dict(part.split("\n", 1) for part in text.split(_FUNCTION)[1:])
    found = {}
    for name, part in parts.items():
        program = _read_line(PROGRAM, part) or name
        said = _read_line(CONSTANTS, part)
        words = [pair.partition(" ") for pair in said.split(", ")] if said else []
        own = re.sub(rf"\A(?:{PROGRAM}.*\n|{CONSTANTS}.*\n)*", "", parts[program])
        found[name] = Shared(
            program=program, constants=tuple((kind, number) for kind, _, number in words), text=own
        )
    return found


def _read_line(begin: str, part: str) -> str:
    """Return the rest of the line that begins so, among the first two; "" if there is none."""
    lines = part.split("\n", 2)[:2]
    return next((line.removeprefix(begin) for line in lines if line.startswith(begin)), "")


def kernel_name(text: str) -> str:
    """Return the name of the kernel that a text defines."""
    head = _KERNEL.search(text)
    return head[1] if head else ""


def standalone(name: str, shared: Shared) -> str:
    """Return the text of one kernel under its own name, to read and to analyse."""
    if not shared.constants and shared.program == name:
        return shared.text
    given = ", ".join(f"C{i} = {number}" for i, (_, number) in enumerate(shared.constants))
    note = f"// The program of {_short(shared.program)}{', with ' + given if given else ''}\n"
    return note + _rename_kernel(shared.text, name)


def _share_alike(
    names: list[str],
    texts: Mapping[str, str],
    numbers: Mapping[str, tuple[str, ...]],
    found: dict[str, Shared],
    decisions: list[Decision],
) -> None:
    """Put kernels of one skeleton into as few programs as their fixed numbers allow."""
    first = names[0]
    places = _places(_blank_name(texts[first])) if len(set(numbers[n] for n in names)) > 1 else []
    programs: dict[tuple[str, ...], list[str]] = {}
    why: dict[str, str] = {}
    varying = [i for i in range(len(places)) if len({numbers[n][i] for n in names}) > 1]
    too_dear = _too_dear(varying, places, _blank_name(texts[first]))
    beyond = {i for i in varying if any(_is_beyond(numbers[n][i], places[i]) for n in names)}
    fixed = [i for i in varying if places[i].fixed or i in too_dear or i in beyond]
    for name in names:
        programs.setdefault(tuple(numbers[name][i] for i in fixed), []).append(name)
    for members in programs.values():
        if members[0] != first:
            i = next(i for i in fixed if numbers[members[0]][i] != numbers[first][i])
            dear = "a number beyond int" if i in beyond else "the stride of an inner loop"
            why[members[0]] = places[i].fixed or dear
        lifted = [i for i in varying if len({numbers[n][i] for n in members}) > 1]
        _instances(members, texts, numbers, lifted, found)
    for name in names:
        decisions += _decisions(name, first, found[name], why)


def _decisions(name: str, first: str, shared: Shared, why: Mapping[str, str]) -> list[Decision]:
    if shared.program != name:
        count = len(shared.constants)
        reason = "their text is the same"
        if count:
            reason = f"they differ in {count} constant{'s'[: count > 1]}, which became arguments"
        taken = f"runs the program of {_short(shared.program)}"
        return [Decision(subject=_short(name), taken=taken, reason=reason)]
    if name not in why:
        return []
    reason = f"it differs from {_short(first)} in {why[name]}, which stays a constant"
    return [Decision(subject=_short(name), taken="has a program of its own", reason=reason)]


def _instances(
    members: list[str],
    texts: Mapping[str, str],
    numbers: Mapping[str, tuple[str, ...]],
    lifted: list[int],
    found: dict[str, Shared],
) -> None:
    """Kernels of one program: numbers that go together are one argument."""
    columns: dict[tuple[str, ...], int] = {}
    argument_of = {}
    for i in lifted:
        column = tuple(numbers[name][i] for name in members)
        argument_of[i] = columns.setdefault(column, len(columns))
    if len(columns) > _MOST_CONSTANTS or _ARGUMENT.search(texts[members[0]]):
        for name in members:
            found[name] = Shared(program=name, constants=(), text=texts[name])
        return
    types = ["float" if column[0].endswith("f") else "int" for column in columns]
    first = members[0]
    text = _rename_kernel(_lift_numbers(_blank_name(texts[first]), argument_of, types), first)
    for row, name in enumerate(members):
        values = [_wrap_to_int(column[row]) for column in columns]
        found[name] = Shared(
            program=first, constants=tuple(zip(types, values, strict=True)), text=text
        )


def _is_beyond(number: str, place: _Number) -> bool:
    """Return whether no `int` stands for it there."""
    return not number.endswith("f") and int(number) > (_WORDS - 1 if place.is_word else _MOST_INT)


def _wrap_to_int(number: str) -> str:
    """Return the `int` of the same bits, where a number is a larger word."""
    beyond = not number.endswith("f") and int(number) > _MOST_INT
    return str(int(number) - _WORDS) if beyond else number


def _lift_numbers(text: str, argument_of: Mapping[int, int], types: list[str]) -> str:
    """Return the text with some of its numbers, by their place among all, as arguments."""
    found = list(_NUMBER.finditer(text))
    for i in sorted(argument_of, reverse=True):
        text = text[: found[i].start()] + f"C{argument_of[i]}" + text[found[i].end() :]
    head = _KERNEL.search(text)
    if head is None or not types:
        return text
    given = "".join(f", {kind} C{i}" for i, kind in enumerate(types))
    return text[: head.end(2)] + given + text[head.end(2) :]


def _places(text: str) -> list[_Number]:
    """Return each number of a kernel's text, in order."""
    found, at = [], 0
    loops: list[tuple[int, int]] = []  # depth of braces, where it begins
    depth = 0
    registers: set[str] = set()
    for line in text.splitlines(keepends=True):
        array = _ARRAY.match(line.rstrip("\n"))
        if array is not None and not array[1]:
            registers.add(array[2])
        loop = _LOOP.match(line)
        for number in _NUMBER.finditer(line):
            fixed = _reason(line, number, loop, array is not None, registers, bool(loops))
            before = line[: number.start()]
            found.append(
                _Number(
                    fixed,
                    loops[-1][1] if loops else -1,
                    before.endswith("* ") or line[number.end() :].startswith(" *"),
                    before.endswith("(uint)"),
                )
            )
        depth += line.count("{") - line.count("}")
        if loop is not None:
            loops.append((depth, at))
        while loops and loops[-1][0] > depth:
            loops.pop()
        at += len(line)
    return found


def _reason(
    line: str,
    number: re.Match[str],
    loop: re.Match[str] | None,
    is_array: bool,
    registers: set[str],
    in_loop: bool,
) -> str:
    """Return why a number stays in the text; "" if nothing says so."""
    before, after = line[: number.start()], line[number.end() :]
    array = _array_around(before)
    in_memory = array is not None or _is_in_load(before)
    whys = {
        "a macro": line.startswith("#") or any(word in line for word in _MACROS),
        "the size of an array": is_array,
        "an axis of threads": _ITEM.search(before) is not None,
        "the bound of a loop that is unrolled": (
            loop is not None and not loop[1].startswith(_ROLLED)
        ),
        "the start of a loop": loop is not None and before.endswith(" = "),
        "a divisor": before.endswith(("/ ", "% ")),
        "the index of a register": array in registers,
        "an offset in memory": (
            in_memory
            and (in_loop or after.lstrip(" ").startswith(")"))
            and not before.endswith("* ")
        ),
    }
    return next((why for why, holds in whys.items() if holds), "")


def _array_around(before: str) -> str | None:
    """Return the array whose index the end of a text lies in, if it does."""
    depth = 0
    for at in range(len(before) - 1, -1, -1):
        if before[at] == "]":
            depth += 1
        elif before[at] == "[":
            if depth == 0:
                found = re.search(r"(\w+)\[$", before[: at + 1])
                return found[1] if found else None
            depth -= 1
    return None


def _is_in_load(before: str) -> bool:
    """Return whether the end of a text lies in the parentheses of a `LOAD_` macro."""
    last = before.rfind("LOAD_")
    rest = before[last:]
    return last >= 0 and rest.count("(") > rest.count(")")


def _too_dear(varying: list[int], places: list[_Number], text: str) -> set[int]:
    """Return factors that would cost more than 2 % of the loop that they are in."""
    loops: dict[int, list[int]] = {}
    for i in varying:
        if places[i].is_factor and places[i].loop >= 0 and not places[i].fixed:
            loops.setdefault(places[i].loop, []).append(i)
    dear: set[int] = set()
    for start, factors in loops.items():
        if len(factors) * _INSTRUCTIONS_OF_A_MULTIPLICATION > _LARGEST_LOSS * _work(text, start):
            dear |= set(factors)
    return dear


def _work(text: str, start: int) -> int:
    """About how many instructions the loop takes that begins at `start`: products of vectors."""
    depth, end = 0, start
    for line in text[start:].splitlines(keepends=True):
        depth += line.count("{") - line.count("}")
        end += len(line)
        if depth <= 0:
            break
    return _LANES * text[start:end].count(" * ")


def _blank_name(text: str) -> str:
    return _rename_kernel(text, "KERNEL")


def _rename_kernel(text: str, name: str) -> str:
    head = _KERNEL.search(text)
    return text if head is None else text[: head.start(1)] + name + text[head.end(1) :]


def _short(kernel: str) -> str:
    return kernel.removesuffix("_kernel")
