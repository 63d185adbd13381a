"""`adrenoc targets`: what can be compiled for; `adrenoc doctor`: what works here, and what to
type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.errors import AppError, DependencyError
from adrenoc.base.text.report import Fields, Part, Table, Title, Verdict, tabulate
from adrenoc.base.text.spelling import Figure, show_bytes
from adrenoc.cli import console
from adrenoc.cli.guarded import Command, give_options, option
from adrenoc.cli.model_params import DEVICE

if TYPE_CHECKING:
    from adrenoc.firmware.mcu.core import Core
    from adrenoc.target.target import Target


_FACT = ("fact", "value", "source")


@click.command("targets", cls=Command)
@click.argument("device", type=DEVICE, required=False)
def targets_command(device: Target | Core | None) -> int:
    """List the devices to compile for, or the facts of one DEVICE."""
    from adrenoc.firmware.mcu.core import Core, core_names, load_core
    from adrenoc.target.target import list_targets

    if isinstance(device, Core):
        core = device
        return console.tell(_core_facts(core), _core_parts(core))
    if device is not None:
        target = device
        whole = {"cost": target.cost, "cost_sources": dict(target.cost_sources)}
        return console.tell({**_facts(target), **whole}, _target_parts(target))
    targets = list_targets()
    cores = [load_core(name) for name in core_names()]

    listed = tabulate(
        cores,
        {
            "for int8 networks": lambda core: core.name,
            "what it is": lambda core: core.title,
            "arithmetic": lambda core: core.facts.arithmetic,
        },
    )
    told = [*map(_facts, targets), *map(_core_facts, cores)]
    return console.tell(told, _list_targets(targets), listed)


def _core_facts(core: Core) -> dict[str, Any]:
    return {
        "name": core.name,
        "title": core.title,
        "core": core.facts,
        "board": core.board,
        "sources": dict(core.sources),
    }


def _core_parts(core: Core) -> list[Part]:
    sources = dict(core.sources)
    rows = tuple(
        (key, Figure(value), sources.get(f"{group}.{key}", ""))
        for group, facts in (("core", core.facts), ("board", core.board))
        if facts is not None
        for key, value in asdict(facts).items()
    )
    return [Title(text=core.name, detail=core.title), Table(columns=_FACT, rows=rows)]


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


def _list_targets(targets: tuple[Target, ...]) -> Table:
    return tabulate(
        [(target, target.limits) for target in targets],
        {
            "device": lambda one: one[0].name,
            "what it is": lambda one: one[0].title,
            "image": lambda one: Figure(
                f"{one[1].image2d_max_width_texels} x {one[1].image2d_max_height_texels}"
            ),
            "layers": lambda one: one[1].image_max_array_layers,
            "work-group": lambda one: one[1].max_work_group_size,
            "local": lambda one: show_bytes(one[1].local_mem_bytes),
            "fp16": lambda one: "yes" if one[1].fp16 else "no",
        },
    )


def _target_parts(target: Target) -> Iterator[Part]:
    yield Title(text=target.name, detail=target.title)
    facts = [
        (f"{group}.{key}", value)
        for group in ("limits", "performance")
        for key, value in asdict(getattr(target, group)).items()
        if value not in (None, ())
    ]
    facts += [(f"measured.{key}", value) for key, value in target.measured]
    rows = [
        (name.partition(".")[2], _format_value(value), target.source_of(name) or "")
        for name, value in facts
    ]
    cost = (
        "cost",
        Figure(target.cost.name),
        "what estimates of kernels reckon with: --json has it",
    )
    yield Table(columns=_FACT, rows=(*rows, cost))
    for quirk in target.gpu.quirks:
        yield Fields(pairs=[("quirk", quirk.name), ("", quirk.text), ("source", quirk.source)])


def _format_value(value: object) -> Figure:
    if isinstance(value, tuple):
        return Figure(", ".join(map(str, value)))
    if isinstance(value, bool):
        return Figure("yes" if value else "no")
    return Figure(f"{value:g}" if isinstance(value, float) else value)


@dataclass(frozen=True, kw_only=True)
class _Examined:
    app: Path | None = option("--app FILE", help="Look over an APK or AAR instead.")


@click.command("doctor", cls=Command)
@give_options(_Examined)
def doctor_command(given: _Examined) -> int:
    """Check this installation and name the fix for what is missing."""
    if given.app is not None:
        return _check_app(given.app)
    from adrenoc.check.doctor import examine

    findings = examine()
    broken = [finding for finding in findings if finding.state == "broken"]

    parts: list[Part] = []
    for one in findings:
        parts.append(Verdict(passed=one.state == "ok", text=f"{one.subject}: {one.seen}"))
        fields = [("needed for", one.needed_for), ("fix", one.fix)]
        parts.append(Fields(pairs=fields if one.fix else []))
    error = None
    if broken:
        error = DependencyError(
            f"this installation does not work: {broken[0].subject} is {broken[0].seen}",
            hint=broken[0].fix,
        )
    return console.tell(findings, parts, error=error)


def _check_app(app: Path) -> int:
    from adrenoc.native.android.app_check import check_app

    troubles = check_app(app)

    right = Verdict(passed=True, text=f"{app.name}: finds OpenCL, loads the runtime and the bundle")
    parts: list[Part] = [] if troubles else [right]
    for one in troubles:
        parts.append(Verdict(passed=False, text=f"{one.where} {one.wrong}"))
        parts.append(Fields(pairs=[("then", one.then), ("fix", one.fix)]))
    error = None
    if troubles:
        first = troubles[0]
        error = AppError(f"{app}: {first.where} {first.wrong}, so {first.then}", hint=first.fix)
    return console.tell(troubles, parts, error=error)
