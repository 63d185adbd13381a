"""`adrenoc check`: how a model would run on a device, before anything is compiled for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.text.spelling import quote_word
from adrenoc.cli.decoder_options import context_option
from adrenoc.cli.guarded import HeavyCommand, OutputPath, wants_json
from adrenoc.cli.options import (
    FiniteRange,
    clml_options,
    memory_option,
    model_explorer_option,
    model_options,
)

if TYPE_CHECKING:
    from adrenoc.check.verdict import Policy, Verdict
    from adrenoc.importers.entry import Entry
    from adrenoc.target.device_set import DeviceSet
    from adrenoc.target.target import Target

_COUNT = click.IntRange(min=0)


@click.command("check", cls=HeavyCommand)
@model_options(sets=True)
@click.option("--max-cpu-nodes", type=_COUNT, metavar="N", help="Fail beyond N nodes on the CPU.")
@click.option(
    "--max-buffer-nodes",
    type=_COUNT,
    metavar="N",
    help="Fail beyond N nodes in buffers, the model's own outputs aside.",
)
@click.option(
    "--max-copies", type=_COUNT, metavar="N", help="Fail beyond N nodes that only move data."
)
@memory_option()
@clml_options()
@context_option()
@click.option(
    "--max-time-ms",
    type=FiniteRange(min=0, min_open=True),
    metavar="T",
    help="Fail where even the roofline's floor is longer.",
)
@click.option(
    "--all", "show_all", is_flag=True, help="List every node, not only those that matter."
)
@click.option(
    "--html",
    type=OutputPath(is_file=True),
    metavar="FILE",
    help="Write a report with the graph and the memory over time: one file, for any browser.",
)
@model_explorer_option("place, bytes and least time of each node")
@click.pass_context
def check_command(
    ctx: click.Context,
    /,
    model: Path,
    target: Target | DeviceSet,
    preset: str | None,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    clml: str | None,
    clml_version: int | None,
    context: int | None,
    show_all: bool,
    html: Path | None,
    explorer: Path | None,
    entry: Entry,
    **limits: Any,
) -> None:
    """Say how MODEL would run on a DEVICE: places, memory, work, and a floor of its time.

    No code is generated and no device is touched.  With limits (--max-...) it fails where the
    plan breaks them, and lists all that it breaks.
    """
    as_json = wants_json()
    from adrenoc.check.verdict import Policy
    from adrenoc.cli.device_sets import list_targets_of

    targets = list_targets_of(target)
    if len(targets) > 1 and (html or explorer or show_all):
        raise click.UsageError(
            "--html, --model-explorer and --all are for one --device, not for several"
        )
    policy = Policy(**limits)
    said = {**_plan(model, shapes, context, entry), "clml": clml, "clml_version": clml_version}
    silent = as_json or len(targets) > 1
    verdicts = [_check(model, one, preset, said, policy, silent=silent) for one in targets]
    written = _write(verdicts[0], html, explorer)
    broken = [verdict for verdict in verdicts if verdict.broken]
    if as_json:
        _print_json(verdicts)
        if broken:
            ctx.exit(_policy_error(broken).exit_code)
        return
    _show(model, verdicts, written, show_all=show_all)
    if broken:
        raise _policy_error(broken)


def _check(
    model: Path,
    target: Target,
    preset: str | None,
    said: dict[str, Any],
    policy: Policy,
    *,
    silent: bool,
) -> Verdict:
    from adrenoc.base.reporter import SilentReporter
    from adrenoc.check.check_model import check_model
    from adrenoc.cli import console
    from adrenoc.ir.options import resolve_options

    options = resolve_options(target, preset=preset, command_line=said).options
    if silent:
        quiet = SilentReporter()
        return check_model(model, target=target, options=options, policy=policy, reporter=quiet)
    with console.ConsoleReporter() as reporter:
        reporter.heading(model.name, f"for {target.name}, preset {options.preset}")
        return check_model(model, target=target, options=options, policy=policy, reporter=reporter)


def _print_json(verdicts: Sequence[Verdict]) -> None:
    """One object; of several devices it lists theirs."""
    from adrenoc.cli import console

    console.print_json(verdicts[0] if len(verdicts) == 1 else {"devices": verdicts})


def _show(
    model: Path, verdicts: Sequence[Verdict], written: tuple[Path, ...], *, show_all: bool
) -> None:
    """The whole verdict of one device; of several a row each."""
    from adrenoc.cli import console
    from adrenoc.cli.show_check import show_devices, show_verdict

    if len(verdicts) > 1:
        show_devices(model, verdicts)
        return
    show_verdict(model, verdicts[0], show_all=show_all)
    console.print_fields([("written", str(path)) for path in written])


def _write(verdict: Verdict, html: Path | None, explorer: Path | None) -> tuple[Path, ...]:
    """The report and the node data that were asked for; the files that were written."""
    written: tuple[Path, ...] = ()
    if html is not None:
        from adrenoc.check.report.page import write_page

        write_page(verdict, html)
        written = (html,)
    if explorer is not None:
        from adrenoc.pages.node_data import figures_of_check, write_node_data

        written += write_node_data(explorer, figures_of_check(verdict))
    return written


def _plan(
    model: Path,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    context: int | None,
    entry: Entry,
) -> dict[str, Any]:
    """The options that tell what to plan: of a decoder, one token."""
    from adrenoc.cli.plan_shapes import plan_shapes

    planned = plan_shapes(model, shapes, (context, None), (), accurate=False, entry=entry)
    return planned.options_of(planned.buckets[0])


def _policy_error(broken: Sequence[Verdict]) -> Any:
    """What breaks its limits; the hint shows the first device whole."""
    from adrenoc.base.errors import PolicyError

    first = broken[0]
    said = [
        sentence if len(broken) == 1 else f"on {verdict.target} {sentence}"
        for verdict in broken
        for sentence in verdict.broken
    ]
    return PolicyError(
        f"{first.model} breaks {len(said)} of the limits that were given: " + "; ".join(said),
        hint=f"adrenoc check {quote_word(first.model)} --device {first.target} --all",
    )
