"""What TVM's model frontends raise, and how to quote it."""

from __future__ import annotations

import re

from adrenoc.base.refused import RefusedError

_OPERATOR = "ir.Op("

# There is no common class: a frontend that meets an attribute or a form that it does not know
# fails with whatever Python or TVM raises there.
CONVERTER_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RefusedError,
    RuntimeError,
    TypeError,
    ValueError,
)


def quote(error: Exception) -> str:
    """One line of the message: TVM prints IR around the reason, and a traceback above it."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    lines = [_name_operators(line) for line in lines]
    reasons = [line for line in lines if "must" in line or "failed" in line or "support" in line]
    return (reasons or lines or [type(error).__name__])[-1]


def _name_operators(line: str) -> str:
    """Return the line with an operator's name in place of all that TVM prints of one."""
    while (start := line.find(_OPERATOR)) >= 0:
        end = _closing(line, start + len(_OPERATOR))
        name = re.search(r'\bname="([^"]*)"', line[start:end])
        line = line[:start] + (name.group(1) if name else "an operator") + line[end:]
    return line


def _closing(line: str, inside: int) -> int:
    """Return the place behind the bracket that closes one, of which `inside` is the first place
    within."""
    depth = 1
    for at in range(inside, len(line)):
        depth += {"(": 1, ")": -1}.get(line[at], 0)
        if not depth:
            return at + 1
    return len(line)
