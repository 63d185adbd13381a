"""Merge what was found into groups that can run as one graph each.

Every binding gets a level: 0 at the inputs, and one more each time that data passes from textures
into CLML.  Found operators of one level that read each other form a group.  Between two members of
a group no path leaves it, since that would have raised the level.

Before -> after:
    conv(0) -> erf(0) -> conv(1)      two groups
    conv(0) -> relu(0), conv(0) -> pool(0) -> concat(0)      one group
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from adrenoc.clml.found import Found
from adrenoc.importers.relax.flat import FlatFunction, variables


def merge(flat: FlatFunction, found: Sequence[Found]) -> tuple[tuple[Found, ...], ...]:
    """Return the groups, each in execution order, in the order of their first members."""
    owner = {binding.var: index for index, match in enumerate(found) for binding in match.bindings}
    level = _levels(flat, found, owner)
    leader = list(range(len(found)))

    def find(index: int) -> int:
        while leader[index] != index:
            leader[index] = leader[leader[index]]
            index = leader[index]
        return index

    for index, match in enumerate(found):
        for binding in match.bindings:
            for var in variables(binding.value):
                other = owner.get(var)
                if other is not None and level[other] == level[index]:
                    first, second = sorted((find(other), find(index)))
                    leader[second] = first
    groups: dict[int, list[Found]] = {}
    for index, match in enumerate(found):
        groups.setdefault(find(index), []).append(match)
    return tuple(tuple(members) for _, members in sorted(groups.items()))


def _levels(
    flat: FlatFunction, found: Sequence[Found], owner: dict[relax.Var, int]
) -> dict[int, int]:
    """Return the level of each match. Matches come in the order in which their results are made."""
    of_var: dict[relax.Var, int] = {}
    of_match: dict[int, int] = {}
    for binding in flat.bindings:
        index = owner.get(binding.var)
        read = [v for v in variables(binding.value) if v in of_var]
        if index is None:
            of_var[binding.var] = max((of_var[v] for v in read), default=0)
            continue
        sources = [
            of_var[v] if owner.get(v) is not None else of_var[v] + 1
            for v in read
            if owner.get(v) != index
        ]
        of_match[index] = max([of_match.get(index, 0), *sources])
        for member in found[index].bindings:
            of_var[member.var] = of_match[index]
    return of_match
