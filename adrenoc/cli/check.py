"""`adrenoc check`: how a model would run on a device, before anything is compiled for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.cli.guarded import HeavyCommand, InputPath, OutputPath
from adrenoc.cli.options import (
    FiniteRange,
    clml_options,
    firmware_options,
    json_option,
    memory_option,
    model_explorer_option,
    model_options,
)

if TYPE_CHECKING:
    from adrenoc.check.verdict import DecoderVerdict, NodeVerdict, Policy, Totals, Verdict
    from adrenoc.mcu.core import Core
    from adrenoc.options import CompileOptions
    from adrenoc.target.target import Target

_TOP = 10
_COUNT = click.IntRange(min=0)


@click.command("check", cls=HeavyCommand)
@model_options(cores=True)
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
@click.option(
    "--context",
    type=click.IntRange(min=1),
    metavar="N",
    help="Of a decoder with caches: their rows.  [default: genai_config.json's, 4096 at most]",
)
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
@firmware_options()
@click.option(
    "--tuning-log",
    type=InputPath(as_text=True),
    metavar="FILE",
    help="For microcontrollers: with the schedules that `adrenoc tune` measured.",
)
@json_option()
@click.pass_context
def check_command(
    ctx: click.Context,
    /,
    model: Path,
    target: Target | Core,
    preset: str | None,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    clml: str | None,
    clml_version: int | None,
    context: int | None,
    show_all: bool,
    html: Path | None,
    explorer: Path | None,
    tuning_log: str | None,
    as_json: bool,
    **limits: Any,
) -> None:
    """Say how MODEL would run on a DEVICE: places, memory, work, and a floor of its time.

    No code is generated and no device is touched.  With limits (--max-...) it fails where the
    plan breaks them, and lists all that it breaks.
    """
    from adrenoc.mcu.core import Core

    sizes = [limits.pop(key) for key in ("max_flash_kib", "max_ram_kib", "spare_flash_kib")]
    if isinstance(target, Core):
        from adrenoc.cli.firmware import check_firmware

        wishes = tuning_log, sizes[2] or 0
        check_firmware(ctx, model, target, (sizes[0], sizes[1]), wishes=wishes, as_json=as_json)
        return
    if any(given is not None for given in (*sizes, tuning_log)):
        raise click.UsageError(
            "--max-flash-kib, --max-ram-kib, --spare-flash-kib and --tuning-log are for "
            "microcontrollers here"
        )
    from adrenoc.check.verdict import Policy
    from adrenoc.cli import console
    from adrenoc.options import resolve_options

    policy = Policy(**limits)
    said = {**_plan(model, shapes, context), "clml": clml, "clml_version": clml_version}
    options = resolve_options(target, preset=preset, command_line=said).options
    verdict = _check(model, target, options, policy, silent=as_json)
    written = _write(verdict, html, explorer)
    if as_json:
        console.print_json(verdict)
        if verdict.broken:
            click.get_current_context().exit(_policy_error(verdict).exit_code)
        return
    _show(verdict, show_all=show_all)
    console.print_fields([("written", str(path)) for path in written])
    if verdict.broken:
        raise _policy_error(verdict)


def _check(
    model: Path, target: Target, options: CompileOptions, policy: Policy, *, silent: bool
) -> Verdict:
    from adrenoc.check.check_model import check_model
    from adrenoc.cli import console
    from adrenoc.reporter import SilentReporter

    if silent:
        quiet = SilentReporter()
        return check_model(model, target=target, options=options, policy=policy, reporter=quiet)
    with console.ConsoleReporter() as reporter:
        reporter.heading(model.name, f"for {target.name}, preset {options.preset}")
        return check_model(model, target=target, options=options, policy=policy, reporter=reporter)


def _write(verdict: Verdict, html: Path | None, explorer: Path | None) -> tuple[Path, ...]:
    """The report and the node data that were asked for; the files that were written."""
    written: tuple[Path, ...] = ()
    if html is not None:
        from adrenoc.check.report.page import write_page

        write_page(verdict, html)
        written = (html,)
    if explorer is not None:
        from adrenoc.views.node_data import figures_of_check, write_node_data

        written += write_node_data(explorer, figures_of_check(verdict))
    return written


def _plan(
    model: Path, shapes: tuple[tuple[str, tuple[int, ...]], ...], context: int | None
) -> dict[str, Any]:
    """The options that tell what to plan: of a decoder, one token."""
    from adrenoc.cli.plan_shapes import plan_shapes

    planned = plan_shapes(model, shapes, (context, None), (), accurate=False)
    return {
        "shapes": planned.buckets[0] or None,
        "states": planned.states or None,
        "caches": planned.caches or None,
    }


def _policy_error(verdict: Verdict) -> Any:
    from adrenoc.errors import PolicyError

    return PolicyError(
        f"{verdict.model} breaks {len(verdict.broken)} of the limits that were given: "
        + "; ".join(verdict.broken),
        hint=f"adrenoc check {verdict.model} --device {verdict.target} --all",
    )


def _show(verdict: Verdict, *, show_all: bool) -> None:
    from adrenoc.cli import console
    from adrenoc.cli.show_regions import show_regions

    console.blank()
    console.print_title(verdict.model, f"on {verdict.target_title}, preset {verdict.preset}")
    console.print_fields(_summary(verdict))
    if show_all:
        _show_nodes("all nodes, in order", verdict.nodes)
    else:
        off = [n for n in verdict.nodes if n.place in ("cpu", "clml") or n.is_off_texture]
        if off:
            _show_steps_down(off)
        timed = sorted(
            (n for n in verdict.nodes if n.time_us is not None), key=lambda n: -(n.time_us or 0.0)
        )
        if timed:
            _show_nodes(f"the {min(_TOP, len(timed))} longest", timed[:_TOP])
        else:
            by_macs = sorted(verdict.nodes, key=lambda n: (-n.flops, -n.bytes_read))
            _show_nodes(f"the {min(_TOP, len(by_macs))} with most operations", by_macs[:_TOP])
    show_regions(verdict.regions)
    if verdict.near_misses:
        console.blank()
        console.print_table(
            ("near miss", "what is seen", "what helps"),
            [
                (console.short(miss.subject), miss.seen, miss.fix)
                for miss in _some(verdict.near_misses, show_all)
            ],
        )
    if verdict.delicate:
        console.blank()
        console.print_table(
            ("delicate in half", "at", "why"),
            [(part.kind, console.short(part.subject), part.seen) for part in verdict.delicate],
        )
        next_one = f"adrenoc compile {verdict.model} --accuracy 1e-2"
        console.print_fields([("next", f"{next_one} measures it, and mends what it has to")])
    console.blank()


def _some(items: Any, show_all: bool) -> Any:
    return items if show_all else items[:_TOP]


def _summary(verdict: Verdict) -> list[tuple[str, str]]:
    from adrenoc.cli import console

    totals, memory = verdict.totals, verdict.memory
    plan = memory.plan
    places = (
        f"{totals.texture_nodes} in textures, {totals.buffer_nodes} in buffers, "
        f"{totals.cpu_nodes} on the CPU, {totals.output_nodes} that write the model's outputs"
    )
    if verdict.regions:
        places += f", {console.count_of(len(verdict.regions), 'region')} of OpenCL ML"
    copies = Counter(node.kind for node in verdict.nodes if node.is_copy)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(copies.items()))
    fields = [
        ("nodes", places),
        *_clml(verdict),
        ("copies", f"{totals.copies}" + (f": {kinds}" if kinds else "")),
        ("launches", _launches(totals)),
        (
            "arithmetic",
            f"{_count(totals.macs)}MAC, {_count(totals.flops)}FLOP; "
            f"{console.size(totals.bytes)} through the memory bus at least, "
            f"{console.size(totals.floor_bytes)} if each tensor were written and read once",
        ),
        (
            "GPU memory",
            f"{console.size(plan.peak_bytes)}: {console.size(plan.param_bytes)} constants, "
            f"{console.size(plan.input_bytes + plan.output_bytes)} inputs and outputs, "
            f"{console.size(plan.slot_bytes)} intermediate tensors in "
            f"{console.count_of(len(plan.slots), 'slot')}",
        ),
        (
            "",
            f"{console.size(plan.live_bytes)} alive at once, at "
            f"{console.short(memory.live_tensor)}: reuse {memory.reuse_ratio:.2f} x that; "
            f"at most {console.size(memory.pitched_bytes)} with padded rows",
        ),
        ("time", _time(verdict)),
        *_decoder(verdict.decoder),
    ]
    if verdict.unknown_rates:
        missing = ", ".join(key.removeprefix("performance.") for key in verdict.unknown_rates)
        fields.append(("unknown", f"{missing} of {verdict.target}: left out of the time"))
    return fields


def _decoder(found: DecoderVerdict | None) -> list[tuple[str, str]]:
    """What a token takes; nothing of a model without caches."""
    from adrenoc.cli import console

    if found is None:
        return []
    held = f"{console.size(found.weight_bytes)} weights, {console.size(found.cache_bytes)} caches"
    fields = [
        ("a token", f"{found.launches} launches, {held} of {found.rows} rows where they are full")
    ]
    if found.tokens_per_s is not None and found.full_tokens_per_s is not None:
        fields.append(
            (
                "at most",
                f"{found.tokens_per_s:.1f} tokens a second by the memory bus, "
                f"{found.full_tokens_per_s:.1f} with a full context",
            )
        )
    return fields


def _clml(verdict: Verdict) -> list[tuple[str, str]]:
    """What became of `--clml`; nothing where it was not asked for."""
    from adrenoc.cli import console

    if not verdict.regions and not verdict.kept_back:
        return []
    operators = sum(len(region.operators) for region in verdict.regions)
    said = f"{console.count_of(operators, 'operator')} go to it, {verdict.kept_back} do not"
    return [("OpenCL ML", f"{said} (--json lists why)")]


def _launches(totals: Totals) -> str:
    from adrenoc.cli import console

    said = f"{totals.launches} of {totals.kernels} kernels"
    if totals.gaps_us is None:
        return said
    return f"{said}: {console.ms(totals.gaps_us / 1000)} by the target's figure, beside the time"


def _time(verdict: Verdict) -> str:
    from adrenoc.cli import console

    time_us = verdict.totals.time_us
    if time_us is None:
        return "unknown: no source gives rates of this target; name a GPU, such as adreno:750"
    bounds = Counter[str]()
    for node in verdict.nodes:
        bounds[node.bound] += int((node.time_us or 0.0) * 1000)
    shares = ", ".join(
        f"{share * 100 // max(sum(bounds.values()), 1)} % {bound}"
        for bound, share in bounds.most_common()
        if bound
    )
    return f"at least {console.ms(time_us / 1000)} on the GPU by its roofline ({shares})"


def _show_steps_down(nodes: Iterable[NodeVerdict]) -> None:
    from adrenoc.cli import console

    console.blank()
    console.print_table(
        ("not in a texture", "operators", "place", "reason"),
        [
            (console.short(node.tensor), " ".join(node.operators), node.place, node.reason)
            for node in nodes
        ],
    )


def _show_nodes(title: str, nodes: Iterable[NodeVerdict]) -> None:
    from adrenoc.cli import console

    console.blank()
    console.print_table(
        (title, "operators", "shape", "place", "FLOP", "memory bus", "time", "bound"),
        [
            (
                console.short(node.tensor),
                " ".join(node.operators),
                console.dims(node.shape),
                node.place,
                _count(node.flops),
                console.size(node.bytes_read + node.bytes_written),
                "" if node.time_us is None else console.ms(node.time_us / 1000),
                node.bound,
            )
            for node in nodes
        ],
        right=("FLOP", "memory bus", "time"),
    )


def _count(number: int) -> str:
    """`4.09 G`, to be followed by the unit."""
    value = float(number)
    for prefix in ("", "k", "M", "G"):
        if value < 1000 or prefix == "G":
            break
        value /= 1000
    return f"{value:.3g} {prefix}" if prefix else f"{number} "
