"""What TVM's model frontends raise, and how to quote it."""

from __future__ import annotations

# There is no common class: a frontend that meets an attribute or a form that it does not know
# fails with whatever Python or TVM raises there.
CONVERTER_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)


def quote(error: Exception) -> str:
    """The last line of the message, which in TVM's errors carries the reason."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
