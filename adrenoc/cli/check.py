"""`adrenoc check`: how a model would run on a device, before anything is compiled for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.errors import PolicyError
from adrenoc.base.reporter import SilentReporter
from adrenoc.base.text.report import Fields
from adrenoc.base.text.spelling import quote_word
from adrenoc.cli import console
from adrenoc.cli.compile import list_targets_of
from adrenoc.cli.guarded import HeavyCommand
from adrenoc.cli.model_params import TARGETS
from adrenoc.cli.named_values import limit_option
from adrenoc.cli.options import DEVICE_HELP, EnteredModel, context_option, html_option
from adrenoc.cli.records import give_options, option

if TYPE_CHECKING:
    from adrenoc.base.reporter import Reporter
    from adrenoc.check.verdict import Policy, Verdict
    from adrenoc.target.device_set import DeviceSet
    from adrenoc.target.target import Target

_LIMITS = {
    "cpu-nodes": True,
    "buffer-nodes": True,
    "copies": True,
    "memory-mib": True,
    "time-ms": False,
}


@dataclass(frozen=True, kw_only=True)
class _Checked(EnteredModel):
    target: Target | DeviceSet = option(  # type: ignore[assignment]
        "--device",
        type=TARGETS,
        default="adreno",
        metavar="DEVICE",
        help=f"{DEVICE_HELP}; several are checked one by one.",
    )
    limit: dict[str, Any] = limit_option(
        _LIMITS,
        "Fail beyond N nodes on the CPU, in buffers (the model's own outputs aside) or that only "
        "move data, beyond so much GPU memory, which is planned for, too, or where even the "
        "roofline's floor is longer",
    )
    clml: str | None = option(
        "--clml",
        type=click.Choice(("auto", "all", "off")),
        help="What goes to Qualcomm's OpenCL ML, as of compile.  [default: off]",
    )
    context: int | None = context_option()
    html: Path | None = html_option("Write a report with the graph and the memory over time")


@click.command("check", cls=HeavyCommand)
@give_options(_Checked)
def check_command(given: _Checked) -> int:
    """Say how MODEL would run on a DEVICE: places, memory, work, and a floor of its time.

    No code is generated and no device is touched.  With --limit it fails where the plan breaks
    one, and lists all that it breaks.
    """
    from adrenoc.check.verdict import Policy
    from adrenoc.pages.check_page.parts import device_parts, verdict_parts

    targets = list_targets_of(given.target)
    if len(targets) > 1 and (given.html):
        raise click.UsageError("--html is for one --device, not for several")
    model, limits = given.model, given.limit
    policy = Policy(**{f"max_{name}": limit for name, limit in limits.items()})
    said = {**given.settings, **_plan(given), "clml": given.clml}
    detail = f"for {', '.join(target.name for target in targets)}"
    with console.show_progress(model.name, detail) as shown:
        reporter = shown if len(targets) == 1 else SilentReporter()
        verdicts = [_check(model, one, given.preset, said, policy, reporter) for one in targets]
    if given.html is not None:
        from adrenoc.pages.check_page.page import write_page

        write_page(verdicts[0], given.html)
    broken = [verdict for verdict in verdicts if verdict.broken]

    parts = device_parts(model, verdicts) if len(verdicts) > 1 else verdict_parts(verdicts[0])
    written = Fields(pairs=[("written", str(given.html))] if given.html is not None else [])
    told = verdicts[0] if len(verdicts) == 1 else {"devices": verdicts}
    error = _policy_error(broken) if broken else None
    return console.tell(told, parts, written, error=error)


def _check(
    model: Path,
    target: Target,
    preset: str | None,
    said: dict[str, Any],
    policy: Policy,
    reporter: Reporter,
) -> Verdict:
    from adrenoc.check.check_model import check_model
    from adrenoc.ir.options import resolve_options

    options = resolve_options(target, preset=preset, command_line=said).options
    return check_model(model, target=target, options=options, policy=policy, reporter=reporter)


def _plan(given: _Checked) -> dict[str, Any]:
    """Return the options that tell what to plan: of a decoder, one token."""
    from adrenoc.cli.plan_shapes import plan_shapes

    decoding = given.context, None
    planned = plan_shapes(
        given.model, given.shapes, decoding, (), accurate=False, entry=given.entry
    )
    return planned.options_of(planned.buckets[0])


def _policy_error(broken: Sequence[Verdict]) -> Any:
    """Return the error of what breaks its limits; the hint shows the first device whole."""
    first = broken[0]
    said = [
        sentence if len(broken) == 1 else f"on {verdict.target} {sentence}"
        for verdict in broken
        for sentence in verdict.broken
    ]
    return PolicyError(
        f"{first.model} breaks {len(said)} of the limits that were given: " + "; ".join(said),
        hint=f"adrenoc check {quote_word(first.model)} --device {first.target} --html page.html",
    )
