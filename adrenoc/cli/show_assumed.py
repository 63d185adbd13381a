"""Lines of what was assumed where a model's file says too little, which nobody has to ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from adrenoc.base.decision import ASSUMED


def list_assumed(decisions: Iterable[Mapping[str, str]]) -> list[tuple[str, str]]:
    """List what was assumed, of what, and how to say otherwise."""
    from adrenoc.cli import console

    return [
        (
            ASSUMED,
            f"{d['taken'].removeprefix(ASSUMED)[1:]}, {console.short(d['subject'])}: {d['reason']}",
        )
        for d in decisions
        if d["taken"].startswith(ASSUMED)
    ]
