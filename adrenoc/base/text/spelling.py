"""Spell names and amounts in messages: what a misspelt name was meant to be, bytes, durations.

Names that others chose become text that a terminal only shows.  Files, tensors, devices and servers
have names that may hold anything: sequences that move the cursor or set the title, controls of the
upper half (C1), marks that turn the order of letters around.  All of these are shown as what they
are.
"""

import difflib
import shlex
from collections.abc import Iterable
from pathlib import Path

MOST_LISTED = 8
"""The most names that a message lists: a model may have thousands of nodes of one kind."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean "x"?)` for the known name nearest to `name`, or an empty string."""
    nearest = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    return f' (did you mean "{nearest[0]}"?)' if nearest else ""


def list_first(items: Iterable[str], *, between: str = "; ", most: int = MOST_LISTED) -> str:
    """Return the first items of a list, and how many more there are."""
    found = list(items)
    if len(found) <= most:
        return between.join(found)
    before = "" if between == ", " else between.rstrip()
    return f"{between.join(found[:most])}{before} and {len(found) - most} more"


def list_names(names: Iterable[str]) -> str:
    """Return the first names, quoted, and how many more there are."""
    return list_first((f"'{name}'" for name in names), between=", ")


def quote_word(value: object) -> str:
    """Return a path, or what else a user named, as one word of a command to type. A path that
    begins with a dash would be read as an option."""
    begins = isinstance(value, Path) and str(value).startswith("-")
    return shlex.quote(f"./{value}" if begins else str(value))


class Figure(str):
    """A number as text, with its unit: tables set it to the right."""


def figure(value: float | None, form: str, unit: str = "") -> Figure:
    """Return a number in such a form, as `.2f`; empty where it is not known."""
    return Figure("" if value is None else f"{value:{form}}{unit}")


def show_bytes(count: int | None) -> Figure:
    """Bytes in the unit that suits; empty where they are not known."""
    if count is None or count < 1024:
        return figure(count, "", " B")
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024 or unit == "GiB":
            break
    return Figure(f"{value:.1f} {unit}")


def show_count(number: int) -> Figure:
    """Shorten a count to `4.09 G`, to be followed by the unit."""
    value = float(number)
    for prefix in ("", "k", "M", "G", "T", "P"):
        if round(value, 1) < 1000 or prefix == "P":
            break
        value /= 1000
    if not prefix:
        return Figure(f"{number} ")
    return Figure(f"{value:.3g} {prefix}" if round(value, 1) < 1000 else f"{value:.0f} {prefix}")


def show_ms(time_ms: float | None) -> Figure:
    """Return a duration with three digits that matter; empty where it is not known."""
    if time_ms is None:
        return Figure()
    if time_ms >= 1000:
        return Figure(f"{time_ms / 1000:.2f} s")
    if 0 < time_ms < 0.001:
        return Figure(f"{time_ms * 1000:.2g} µs")
    if time_ms < 1:
        return Figure(f"{time_ms * 1000:.0f} µs")
    return Figure(f"{time_ms:.{2 if time_ms < 10 else 1 if time_ms < 100 else 0}f} ms")


def show_us(time_us: float | None) -> Figure:
    """Return the same of a duration in microseconds."""
    return show_ms(None if time_us is None else time_us / 1000)


def show_growth(before: float | None, after: float | None) -> Figure:
    """`+12.5 %`; empty where both are equal, or one is not known."""
    if before is None or after is None or before == after:
        return Figure()
    if not before:
        return Figure("new")
    share = (after - before) / before
    return Figure(f"{share:+.1%}".replace("%", " %") if abs(share) >= 0.0005 else f"{share:+.0e}")


def show_value(value: object) -> str:
    """Return an option's value: `none`, `true`, `a, b`; of a shape or a state `NAME:1,8`."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_show_part, value)) or "none"
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _show_part(part: object) -> str:
    if not isinstance(part, list | tuple) or len(part) != 2:
        return show_value(part)
    name, held = part
    return f"{name}:{','.join(map(str, held)) if isinstance(held, list | tuple) else held}"


def count_of(count: int, noun: str) -> str:
    """`1 slot`, `2 slots`."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def dims(shape: Iterable[int]) -> str:
    """Return a shape: `1x3x224x224`."""
    return "x".join(str(extent) for extent in shape) or "scalar"


_BYTE_ESCAPES = range(0xDC80, 0xDD00)
"""How Python reads the bytes of a file name that are not UTF-8."""


def printable(text: str, *, lines: bool = False) -> str:
    r"""Return the text with every character that is not shown as one replaced: `\x1b`, `\u202e`.
    With `lines`, ends of lines and tabs stay."""
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(c if c.isprintable() or c in kept else _escape(c) for c in text)


def printable_json(text: str) -> str:
    """Return the same for JSON, in which every such character is a part of a string."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _json_escaped(c) for c in text)


def _escape(letter: str) -> str:
    code = ord(letter)
    if code in _BYTE_ESCAPES:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x100:
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(letter, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escaped(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
