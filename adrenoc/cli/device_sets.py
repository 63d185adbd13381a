"""Several devices at once: what commands make of a set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from adrenoc.compile.edition_plan import EditionPlan
    from adrenoc.target.device_set import DeviceSet, SetMember
    from adrenoc.target.target import Target


def split_set(target: Target | DeviceSet) -> tuple[Target, tuple[SetMember, ...]]:
    """Return what all devices have in common, and those that get kernels of their own."""
    from adrenoc.target.device_set import DeviceSet

    if isinstance(target, DeviceSet):
        return target.common, target.members
    return target, ()


def list_targets_of(target: Target | DeviceSet) -> tuple[Target, ...]:
    """List one device, or each of a set."""
    common, members = split_set(target)
    return tuple(member.target for member in members) or (common,)


def check_devices(
    count: int, stop_after: str | None, fallback: str | None, dump_dir: Path | None
) -> None:
    """Refuse what is for one device alone."""
    if count and (stop_after or fallback or dump_dir):
        raise click.UsageError(
            "--stop-after, --fallback and ADRENOC_DUMP_DIR are for one --device, not for several"
        )


def plan_editions(
    members: Sequence[SetMember],
    preset: str | None,
    command_line: Mapping[str, Any],
    float32_tensors: tuple[str, ...],
) -> tuple[EditionPlan, ...]:
    """Return how to compile for each GPU of a set, with the tensors in float32 that are for all."""
    from adrenoc.compile.edition_plan import EditionPlan
    from adrenoc.ir.options import resolve_options

    said = {**command_line, "float32_tensors": float32_tensors or None}
    return tuple(
        EditionPlan(
            member=member,
            options=resolve_options(member.target, preset=preset, command_line=said).options,
        )
        for member in members
    )
