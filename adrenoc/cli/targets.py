"""`adrenoc targets`: what can be compiled for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from adrenoc.cli import console
from adrenoc.cli.guarded import Command
from adrenoc.cli.model_params import DeviceParam

if TYPE_CHECKING:
    from adrenoc.firmware.mcu.core import Core
    from adrenoc.target.target import Target


@click.command("targets", cls=Command)
@click.argument("device", type=DeviceParam(), required=False)
def targets_command(device: Target | Core | None) -> int:
    """List the devices to compile for, or the facts of one DEVICE."""
    from adrenoc.firmware.mcu.core import Core, core_names, load_core
    from adrenoc.target.target import list_targets

    if isinstance(device, Core):
        core = device
        return console.tell(_core_facts(core), lambda: _show_core(core))
    if device is not None:
        target = device
        whole = {"cost": target.cost, "cost_sources": dict(target.cost_sources)}
        return console.tell({**_facts(target), **whole}, lambda: _show_one(target))
    targets = list_targets()
    cores = [load_core(name) for name in core_names()]

    def show() -> None:
        _show_all(targets)
        console.blank()
        rows = [(core.name, core.title, core.facts.arithmetic) for core in cores]
        console.print_table(("for int8 networks", "what it is", "arithmetic"), rows)

    return console.tell([*map(_facts, targets), *map(_core_facts, cores)], show)


def _core_facts(core: Core) -> dict[str, Any]:
    return {
        "name": core.name,
        "title": core.title,
        "core": core.facts,
        "board": core.board,
        "sources": dict(core.sources),
    }


def _show_core(core: Core) -> None:
    from dataclasses import asdict

    console.print_title(core.name, core.title)
    sources = dict(core.sources)
    rows = [
        (key, str(value), sources.get(f"{group}.{key}", ""))
        for group, facts in (("core", core.facts), ("board", core.board))
        if facts is not None
        for key, value in asdict(facts).items()
    ]
    console.print_table(("fact", "value", "source"), rows, right=("value",))


def _facts(target: Target) -> dict[str, Any]:
    return {
        "name": target.name,
        "title": target.title,
        "host": target.host,
        "llvm_triple": target.llvm_triple,
        "limits": target.limits,
        "performance": target.performance,
        "cost": target.cost.name,
        "measured": dict(target.measured),
        "sources": dict(target.sources),
        "digest": target.digest(),
    }


def _show_all(targets: tuple[Target, ...]) -> None:
    rows = []
    for target in targets:
        limits = target.limits
        rows.append(
            (
                target.name,
                target.title,
                f"{limits.image2d_max_width_texels} x {limits.image2d_max_height_texels}",
                str(limits.image_max_array_layers),
                str(limits.max_work_group_size),
                console.size(limits.local_mem_bytes),
                "yes" if limits.fp16 else "no",
            )
        )
    console.print_table(
        ("device", "what it is", "image", "layers", "work-group", "local", "fp16"),
        rows,
        right=("image", "layers", "work-group", "local"),
    )


def _show_one(target: Target) -> None:
    from dataclasses import asdict

    console.print_title(target.name, target.title)
    rows = [
        (key, _format_value(value), target.source_of(f"{group}.{key}") or "")
        for group in ("limits", "performance")
        for key, value in asdict(getattr(target, group)).items()
        if value not in (None, ())
    ]
    rows += [
        (
            key,
            f"{_format_value(value) if isinstance(value, bool) else f'{value:g}'}",
            target.source_of(f"measured.{key}") or "",
        )
        for key, value in target.measured
    ]
    rows.append(("cost", target.cost.name, "what estimates of kernels reckon with: --json has it"))
    console.print_table(("fact", "value", "source"), rows, right=("value",))
    for quirk in target.gpu.quirks:
        console.blank()
        console.print_fields([("quirk", quirk.name), ("", quirk.text), ("source", quirk.source)])


def _format_value(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
