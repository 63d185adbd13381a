"""Kinds of small graphs in which halves or floats lose most, each drawn by seed."""

from __future__ import annotations

from scripts.verifying.number_kinds import choices, functions, signals, sums
from scripts.verifying.number_kinds.draw import Draw, Kind, Parts

KINDS: dict[str, Kind] = {
    "angles": functions.angles,
    "powers": functions.powers,
    "tails": functions.tails,
    "root-logs": functions.root_logs,
    "cumulative": sums.cumulative,
    "reductions": sums.reductions,
    "norms": sums.norms,
    "differences": sums.differences,
    "recurrent": sums.recurrent,
    "choices": choices.choices,
    "wholes": choices.wholes,
    "coordinates": choices.coordinates,
    "masks": choices.masks,
    "spectra": signals.spectra,
    "rotations": signals.rotations,
    "integers": signals.integers,
    "layers": signals.layers,
}


def draw_cases(kind: str, numbers: range, seed: int) -> tuple[Parts, dict[str, str]]:
    """Cases of a kind by number, in one model; and what each is, in words, by its name."""
    parts, about = Parts(), {}
    for number in numbers:
        name = f"{kind}{number}"
        draw = Draw(parts, name, seed)
        KINDS[kind](draw)
        about[name] = ", ".join(word for word in draw.told if word)
    return parts, about
