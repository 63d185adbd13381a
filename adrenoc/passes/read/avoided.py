"""What a target's quirks leave out of a compilation, as decisions and as operators."""

from __future__ import annotations

from collections.abc import Iterator

from adrenoc.base.decision import Decision
from adrenoc.base.errors import TargetError
from adrenoc.base.text.spelling import did_you_mean
from adrenoc.kernels.families.operators import OPERATORS
from adrenoc.target.avoid import OPERATOR, describe_quirk
from adrenoc.target.target import Target


def avoid_decisions(target: Target) -> Iterator[Decision]:
    """Yield a decision for each thing that is left out."""
    for word, reason in target.avoided.items():
        yield Decision(subject=target.title, taken=f"without {word}", reason=reason)
    if target.own is None:
        return
    for quirk in target.gpu.quirks:
        bounds = (
            ("work-groups", quirk.work_group_items_below, "threads"),
            ("images", quirk.image_extent_below, "texels a side"),
            ("local memory", quirk.local_bytes_below, "bytes"),
        )
        for what, below, unit in bounds:
            if below is not None:
                taken = f"{what} of less than {below} {unit}"
                yield Decision(subject=target.title, taken=taken, reason=describe_quirk(quirk))
        if quirk.banned_work_groups:
            shapes = ", ".join(" x ".join(map(str, g)) for g in quirk.banned_work_groups)
            taken = f"no work-groups of {shapes}"
            yield Decision(subject=target.title, taken=taken, reason=describe_quirk(quirk))


def avoided_operators(target: Target) -> dict[str, str]:
    """Operator -> why the target is to do without its kernels.

    Raises:
        TargetError: a quirk names one that there is not.
    """
    found = {}
    for word, reason in target.avoided.items():
        kind, _, name = word.partition(":")
        if kind != OPERATOR:
            continue
        if name not in OPERATORS:
            raise TargetError(
                f'{target.title} avoids the unknown operator "{name}"'
                f"{did_you_mean(name, list(OPERATORS))} ({reason}), expected one of "
                + ", ".join(OPERATORS),
                hint="adrenoc device verify -o device.json makes a report of this version",
            )
        found[name] = reason
    return found
