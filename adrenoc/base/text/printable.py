"""Names that others chose, as text that a terminal only shows.

Files, tensors, devices and servers have names that may hold anything: sequences that move the
cursor or set the title, controls of the upper half (C1), marks that turn the order of letters
around.  All of these are shown as what they are.
"""

from __future__ import annotations

_BYTE_ESCAPES = range(0xDC80, 0xDD00)
"""How Python reads the bytes of a file name that are not UTF-8."""


def printable(text: str, *, lines: bool = False) -> str:
    r"""Return the text with every character that is not shown as one replaced: `\x1b`, `\u202e`.

    With `lines`, ends of lines and tabs stay.
    """
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
