"""The figures of two bundles beside each other, for a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adrenoc.base.text.amounts import show_bytes, show_growth, show_ms
from adrenoc.bundle.figures import Figures

_ROWS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("kernels", "kernels", str),
    ("launches", "launches", str),
    ("copies", "copies", str),
    ("operators in textures", "texture_nodes", str),
    ("operators in buffers", "buffer_nodes", str),
    ("operators on the CPU", "cpu_nodes", str),
    ("GPU memory", "memory_bytes", show_bytes),
    ("size", "size_bytes", show_bytes),
    ("estimated time", "time_us", lambda us: show_ms(us / 1000)),
)
_NEITHER = ("operators in textures",)
"""More may be good, as after buffers, or bad, as where less was fused."""


def list_figures(before: Figures, after: Figures) -> list[tuple[str, str, str, str, str]]:
    """Return a row a figure: name, before, after, change, and "good", "bad" or nothing of that."""
    rows = []
    for name, key, show in _ROWS:
        was, now = getattr(before, key), getattr(after, key)
        kind = ""
        if was is not None and now is not None and was != now:
            kind = "" if name in _NEITHER else "good" if now < was else "bad"
        rows.append((name, _text(was, show), _text(now, show), show_growth(was, now), kind))
    return rows


def show_figures(figures: Figures) -> list[tuple[str, str]]:
    """Name and value of each figure."""
    values = ((name, getattr(figures, key), show) for name, key, show in _ROWS)
    return [(name, _text(value, show)) for name, value, show in values]


def _text(value: float | None, show: Callable[[Any], str]) -> str:
    return "unknown" if value is None else show(value)
