"""Bars beside each other, from zero up, as a drawing of a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from adrenoc.base.text.report import safe

_HEIGHT, _WIDEST = 180, 24


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar: the text that a pointer on it shows, its height, and that of its dark part."""

    title: str
    height: float
    part: float = 0.0


def draw_bars(bars: Sequence[Bar], *, top: str, what: str) -> str:
    """Return an SVG; `top` names the height of the tallest bar, `what` the whole. A height that is
    not finite is as tall as the tallest."""
    most = max((bar.height for bar in bars if math.isfinite(bar.height)), default=0.0) or 1.0
    drawn = "".join(
        f"<g><title>{safe(bar.title)}</title>"
        f"{_rectangle('whole', x, bar.height / most)}"
        # A launch may be faster than thought possible: a part is never more than the whole.
        f"{_rectangle('part', x, min(bar.part, bar.height) / most)}</g>"
        for x, bar in enumerate(bars)
    )
    return (
        f"<p class='quiet'>up to {safe(top)}</p>\n"
        f"<svg class='drawn' viewBox='0 0 {len(bars)} 1' preserveAspectRatio='none' width='100%' "
        f"height='{_HEIGHT}' style='max-width:{_WIDEST * len(bars)}px' role='img' "
        f"aria-label='{safe(what)}'>{drawn}</svg>\n"
    )


def _rectangle(kind: str, x: int, height: float) -> str:
    high = min(height, 1.0)
    return f"<rect class='{kind}' x='{x}' y='{1 - high:.4f}' width='0.85' height='{high:.4f}'/>"
