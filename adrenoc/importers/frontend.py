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
    """One line of the message: TVM prints IR around the reason, and a traceback above it."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    reasons = [line for line in lines if "must" in line or "failed" in line or "support" in line]
    return (reasons or lines or [type(error).__name__])[-1]
