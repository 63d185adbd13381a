"""All hostile cases, in the order of the table."""

from collections import Counter

from tests.hostile import (
    arrays,
    bundles,
    device_commands,
    firmware,
    graphs,
    models,
    outputs,
    packages,
    rights,
    servers,
    surroundings,
)
from tests.hostile.case import Case

LEAST = 400


PARTS = (
    *(models, graphs, outputs, bundles, arrays, firmware, surroundings, servers, packages),
    *(rights, device_commands),
)


def all_cases() -> list[Case]:
    """Every case; their titles differ."""
    found = [case for part in PARTS for case in part.cases()]
    twice = [title for title, count in Counter(case.title for case in found).items() if count > 1]
    if twice:
        raise ValueError(f"cases with the same title: {twice[:3]}")
    return found


def as_table(cases: list[Case], wrong: dict[str, list[str]]) -> str:
    """The families with their counts, then each case that ended badly."""
    counts = Counter(case.family for case in cases)
    bad = Counter(case.family for case in cases if wrong.get(case.title))
    lines = [
        f"{count:5} cases, {bad[family]:3} wrong  {family}" for family, count in counts.items()
    ]
    lines.append(f"{len(cases):5} cases, {sum(bad.values()):3} wrong  in all")
    lines += [f"{title}: {'; '.join(what)}" for title, what in wrong.items() if what]
    return "\n".join(lines)
