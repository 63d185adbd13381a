"""Figures in their order as a drawing of bars, each with a part of it that is told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from adrenoc.base.text.html_page import safe

_WIDTH, _HEIGHT, _LEFT, _TOP = 1100, 180, 64, 12
_WIDEST_BAR = 24.0


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar: the text that a pointer on it shows, its height, and that of its dark part."""

    title: str
    height: float
    part: float = 0.0


def draw_bars(bars: Sequence[Bar], *, top: str, what: str) -> str:
    """Return an SVG from zero up; `top` names the height of the tallest bar, `what` the whole.

    A height that is not finite is as tall as the tallest.
    """
    most = max((bar.height for bar in bars if math.isfinite(bar.height)), default=0.0) or 1.0
    wide = min((_WIDTH - _LEFT) / max(len(bars), 1), _WIDEST_BAR)
    drawn = "".join(
        _draw_bar(bar, _LEFT + wide * place, wide, most) for place, bar in enumerate(bars)
    )
    right = _LEFT + wide * len(bars)
    return (
        f"<svg class='drawn' viewBox='0 0 {_WIDTH} {_HEIGHT + 8}' width='100%' role='img' "
        f"aria-label='{safe(what)}'>"
        f"<text x='0' y='{_TOP + 8}'>{safe(top)}</text><text x='0' y='{_HEIGHT}'>0</text>"
        f"<line x1='{_LEFT}' y1='{_HEIGHT}' x2='{right:.1f}' y2='{_HEIGHT}'/>{drawn}</svg>\n"
    )


def _draw_bar(bar: Bar, x: float, wide: float, most: float) -> str:
    inner = max(wide * 0.85, 0.5)
    whole = min(bar.height, most) / most
    # A part cannot be more than the whole, as of a launch that was faster than thought possible.
    part = min(bar.part, bar.height, most) / most
    return (
        f"<g><title>{safe(bar.title)}</title>"
        f"{_rectangle('whole', x, inner, whole)}{_rectangle('part', x, inner, part)}</g>"
    )


def _rectangle(kind: str, x: float, wide: float, share: float) -> str:
    high = share * (_HEIGHT - _TOP)
    return (
        f"<rect class='{kind}' x='{x:.1f}' y='{_HEIGHT - high:.1f}' width='{wide:.1f}' "
        f"height='{high:.1f}'/>"
    )
