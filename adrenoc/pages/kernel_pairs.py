"""Which kernel of one bundle is which of another, whatever number its name ends with."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from adrenoc.bundle.launches import LaunchInfo
from adrenoc.bundle.manifest import KernelInfo

ADDED, REMOVED, TEXT, LAUNCH, NAME = "added", "removed", "text", "launch", "name"
_LAUNCH_FACTS = ("work_group", "grid", "calls", "scopes", "tuned")
_MOST_LINES = 4000
"""Of a text whose lines are counted one against the other: that takes their product."""


@dataclass(frozen=True, kw_only=True)
class KernelChange:
    """A kernel that is not as it was; `before` or `after` is empty where there is none.

    `kind` is "added", "removed", "text", "launch" (the same text in other work-groups, or called
    another number of times; `what` says it) or "name" alone.  `lines` counts those of the text that
    came and those that went.
    """

    kind: str
    before: str
    after: str
    family: str
    what: str = ""
    lines: tuple[int, int] = (0, 0)


Pairs = Sequence[tuple[KernelInfo | None, KernelInfo | None]]


def list_changes(pairs: Pairs) -> tuple[KernelChange, ...]:
    """Return what changed; kernels have their texts."""
    changes = []
    for old, new in pairs:
        if old is None or new is None:
            changes.append(_one_sided(old, new))
            continue
        change = _change(old, new)
        if change is not None:
            changes.append(change)
    return tuple(changes)


def pair_kernels(
    before: Sequence[KernelInfo],
    after: Sequence[KernelInfo],
    *,
    launches: tuple[Sequence[LaunchInfo], Sequence[LaunchInfo]],
) -> Pairs:
    """Pairs in the order of `after`, those that are gone last.

    Equal texts belong together; then kernels that compute the same node; then equal names.
    """
    gone = {kernel.name: kernel for kernel in before}
    partner: dict[str, KernelInfo] = {}

    def match(key_of_old: Mapping[str, str], key_of_new: Mapping[str, str]) -> None:
        places: dict[str, list[str]] = defaultdict(list)
        for name in gone:
            if name in key_of_old:
                places[key_of_old[name]].append(name)
        for kernel in after:
            names = places.get(key_of_new.get(kernel.name, ""), [])
            if kernel.name in partner or not names:
                continue
            chosen = kernel.name if kernel.name in names else names[0]
            names.remove(chosen)
            partner[kernel.name] = gone.pop(chosen)

    texts = _bodies(before), _bodies(after)
    # By name first, so that of two kernels with one text each stays with itself.
    match({n: n + text for n, text in texts[0].items()}, {n: n + t for n, t in texts[1].items()})
    match(*texts)
    match(_first_nodes(launches[0]), _first_nodes(launches[1]))
    match({name: name for name in gone}, {kernel.name: kernel.name for kernel in after})
    pairs = [(partner.get(kernel.name), kernel) for kernel in after]
    return [*pairs, *((kernel, None) for kernel in gone.values())]


def _bodies(kernels: Iterable[KernelInfo]) -> dict[str, str]:
    """Return the text of each kernel by its name."""
    return {kernel.name: read_body(kernel) for kernel in kernels}


def read_body(kernel: KernelInfo) -> str:
    """Return the text of a kernel without its name."""
    return kernel.source.replace(kernel.name, "\0")


def _first_nodes(launches: Sequence[LaunchInfo]) -> dict[str, str]:
    """Return the node that each kernel computes first."""
    nodes: dict[str, str] = {}
    for launch in launches:
        nodes.setdefault(launch.kernel, launch.node)
    return nodes


def _one_sided(old: KernelInfo | None, new: KernelInfo | None) -> KernelChange:
    if new is not None:
        lines = (len(new.source.splitlines()), 0)
        return KernelChange(kind=ADDED, before="", after=new.name, family=new.family, lines=lines)
    name, family, source = ("", "", "") if old is None else (old.name, old.family, old.source)
    lines = (0, len(source.splitlines()))
    return KernelChange(kind=REMOVED, before=name, after="", family=family, lines=lines)


def _change(old: KernelInfo, new: KernelInfo) -> KernelChange | None:
    what = "; ".join(
        f"{fact.replace('_', '-')} {_format(getattr(old, fact))} to {_format(getattr(new, fact))}"
        for fact in _LAUNCH_FACTS
        if getattr(old, fact) != getattr(new, fact)
    )
    same = KernelChange(kind=NAME, before=old.name, after=new.name, family=new.family)
    was, now = read_body(old), read_body(new)
    if was != now:
        lines = count_lines(was.splitlines(), now.splitlines())
        return replace(same, kind=TEXT, what=what, lines=lines)
    if what:
        return replace(same, kind=LAUNCH, what=what)
    return same if old.name != new.name else None


def count_lines(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """Return how many lines came, and how many went."""
    if max(len(before), len(after)) > _MOST_LINES:
        return len(after), len(before)
    matcher = difflib.SequenceMatcher(None, before, after)
    kept = sum(block.size for block in matcher.get_matching_blocks())
    return len(after) - kept, len(before) - kept


def _format(value: object) -> str:
    if isinstance(value, tuple):
        if all(isinstance(part, str) for part in value):
            textures = sum("texture" in part for part in value)
            return f"{textures} textures of {len(value)}"
        return "x".join(map(str, value))
    return str(value).lower()
