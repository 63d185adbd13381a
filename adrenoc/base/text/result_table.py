"""A table of a result as texts, which terminals and pages show alike."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """Rows of texts; `figures` names the columns of numbers, which are set to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures: tuple[str, ...] = ()
