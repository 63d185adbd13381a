"""Amounts as people read them: bytes, durations, and by how much one changed."""

from __future__ import annotations

from collections.abc import Iterable


def show_bytes(count: int) -> str:
    """Bytes in the unit that suits."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024 or unit == "GiB":
            break
    return f"{value:.1f} {unit}"


def show_ms(time_ms: float) -> str:
    """Return a duration with three digits that matter."""
    if time_ms >= 1000:
        return f"{time_ms / 1000:.2f} s"
    if 0 < time_ms < 0.001:
        return f"{time_ms * 1000:.2g} µs"
    if time_ms < 1:
        return f"{time_ms * 1000:.0f} µs"
    return f"{time_ms:.{2 if time_ms < 10 else 1 if time_ms < 100 else 0}f} ms"


def show_growth(before: float | None, after: float | None) -> str:
    """`+12.5 %`; empty where both are equal, or one is not known."""
    if before is None or after is None or before == after:
        return ""
    if not before:
        return "new"
    share = (after - before) / before
    return f"{share:+.1%}".replace("%", " %") if abs(share) >= 0.0005 else f"{share:+.0e}"


def count_of(count: int, noun: str) -> str:
    """`1 slot`, `2 slots`."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def dims(shape: Iterable[int]) -> str:
    """Return a shape: `1x3x224x224`."""
    return "x".join(str(extent) for extent in shape) or "scalar"
