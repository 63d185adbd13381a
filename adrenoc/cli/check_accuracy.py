"""`adrenoc check-accuracy`: where half precision goes wrong, why, and what mends it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.cli.decoder_options import int8_prompts_option
from adrenoc.cli.entry_options import entry_options
from adrenoc.cli.guarded import HeavyCommand, InputPath, OutputPath, wants_json
from adrenoc.cli.model_params import TargetParam
from adrenoc.cli.options import (
    FiniteRange,
    effort_option,
    inputs_option,
    model_explorer_option,
    path_argument,
    seed_option,
    shape_option,
)

if TYPE_CHECKING:
    from adrenoc.check.accuracy.passage import Wording
    from adrenoc.check.accuracy.result import (
        AccuracyReport,
        LayerAccuracy,
        PresetAccuracy,
        Remedy,
    )
    from adrenoc.importers.entry import Entry
    from adrenoc.target.target import Target

_WORST_LAYERS = 8


@click.command("check-accuracy", cls=HeavyCommand)
@path_argument("model")
@click.option(
    "--device",
    "target",
    type=TargetParam(),
    default="host",
    show_default=True,
    metavar="DEVICE",
    help="Whose kernels to examine; they run here: host, host:a750.",
)
@click.option(
    "--preset",
    type=click.Choice(("mixed", "fp16", "both")),
    default="both",
    show_default=True,
    help="What to examine.",
)
@inputs_option(
    "Sets of inputs: .npz files, or .npy files for a model with one input.  [default: random]"
)
@shape_option()
@entry_options()
@seed_option("For random inputs.")
@click.option(
    "--tolerance",
    type=FiniteRange(min=0.0, min_open=True),
    default=1e-2,
    show_default=True,
    help="Largest error over the range of an output.",
)
@effort_option()
@int8_prompts_option()
@click.option(
    "--cl-device", default="", help="OpenCL device: a number or a part of its name.  [default: any]"
)
@click.option(
    "-o",
    "--output",
    type=OutputPath(is_file=True),
    metavar="POLICY.json",
    help="Write the policy there, for compile --precision-policy; needs one --preset.",
)
@click.option(
    "--point",
    type=click.IntRange(min=0),
    metavar="N",
    help="Take policy N of the list in place of what meets --tolerance; needs one --preset.",
)
@click.option(
    "--text",
    type=InputPath(),
    metavar="FILE",
    help="Of a decoder: text to predict, token by token.  [default: seeded token numbers]",
)
@click.option(
    "--tokenizer",
    type=InputPath(),
    metavar="FILE",
    help="Of --text: the model's tokenizer.json.  [default: the one beside the model]",
)
@click.option(
    "--tokens",
    type=click.IntRange(min=2),
    metavar="N",
    help="Of a decoder: take the first N tokens.  [default: 32]",
)
@click.option(
    "--source",
    type=InputPath(),
    metavar="BETTER.onnx",
    help="Of a decoder: the same with more bits.  Tells how far MODEL is from it, and by which "
    "weights; what halves do is another question, and is not looked at.",
)
@click.option(
    "--source-tolerance",
    type=FiniteRange(min=0.0, min_open=True),
    metavar="NATS",
    help="Of --source: largest divergence of the predictions, the mean of all tokens.  "
    "[default: 0.01]",
)
@click.option(
    "--mended",
    type=OutputPath(is_file=True),
    metavar="FILE.onnx",
    help="Of --source: write MODEL there with the fewest of its worst weights taken from BETTER "
    "that hold the tolerance.",
)
@click.option("--all", "show_all", is_flag=True, help="List every layer, not only the worst.")
@click.option(
    "--html",
    type=OutputPath(is_file=True),
    metavar="FILE",
    help="Write a report: the error along the network, and each layer's own, the worst first.",
)
@model_explorer_option("what each layer adds to the error, and the error so far")
@click.pass_context
def check_accuracy_command(
    ctx: click.Context,
    model: Path,
    target: Target,
    preset: str,
    folder: Path | None,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    seed: int,
    tolerance: float,
    effort: float,
    int8_prompts: bool | None,
    cl_device: str,
    output: Path | None,
    point: int | None,
    text: Path | None,
    tokenizer: Path | None,
    tokens: int | None,
    source: Path | None,
    source_tolerance: float | None,
    mended: Path | None,
    show_all: bool,
    html: Path | None,
    explorer: Path | None,
    entry: Entry,
) -> None:
    """Compare each layer of MODEL in half precision with the reference, and find a remedy."""
    as_json = wants_json()
    _check_one_preset(preset, output, point)
    if source is not None:
        from adrenoc.cli.show_source import compare_source

        asked, words = (source, mended, source_tolerance), _word(text, tokenizer, tokens)
        ctx.exit(compare_source(model, asked, words, seed, all_=show_all, as_json=as_json))
    if mended is not None or source_tolerance is not None:
        raise click.UsageError("--mended and --source-tolerance are for --source")
    _check_target(target)
    from adrenoc.base.errors import CheckFailedError
    from adrenoc.base.reporter import SilentReporter
    from adrenoc.check.accuracy.examine import check_accuracy
    from adrenoc.check.inputs import input_files
    from adrenoc.cli.console import ConsoleReporter

    arguments: dict[str, Any] = {
        "target": target,
        "presets": ("mixed", "fp16") if preset == "both" else (preset,),
        "files": () if folder is None else input_files(folder),
        "shapes": shapes,
        "seed": seed,
        "tolerance": tolerance,
        "cl_device": cl_device,
        "effort": effort,
        "int8_prompts": bool(int8_prompts),
        "point": point,
        "entry": entry,
        "wording": _word(text, tokenizer, tokens),
    }
    with nullcontext(SilentReporter()) if as_json else ConsoleReporter() as reporter:
        report = check_accuracy(model, reporter=reporter, **arguments)
    _tell(report, output, (html, explorer), show_all=show_all, as_json=as_json)
    ctx.exit(0 if report.passed else CheckFailedError.exit_code)


def _check_one_preset(preset: str, output: Path | None, point: int | None) -> None:
    if output is not None and preset == "both":
        raise click.UsageError("-o takes the policy of one preset: --preset mixed or --preset fp16")
    if point is not None and preset == "both":
        raise click.UsageError("--point is of one list: --preset mixed or --preset fp16")


def _tell(
    report: AccuracyReport,
    output: Path | None,
    views: tuple[Path | None, Path | None],
    *,
    show_all: bool,
    as_json: bool,
) -> None:
    """Write what was asked for, the policy and the views, and show the report."""
    from adrenoc.cli import console
    from adrenoc.cli.show_accuracy import finite

    if output is not None:
        _write(report, output)
    written = _write_views(report, *views)
    if as_json:
        console.print_json(finite(asdict(report)))
    else:
        _show(report, output, show_all)
        console.print_fields([("written", str(path)) for path in written])


def _word(text: Path | None, tokenizer: Path | None, tokens: int | None) -> Wording | None:
    """What a decoder is examined on, None where nothing was asked for."""
    from adrenoc.check.accuracy.passage import USUAL_TOKENS, Wording

    if tokenizer is not None and text is None:
        raise click.UsageError("--tokenizer is for --text")
    if text is None and tokens is None:
        return None
    return Wording(text=text, tokenizer=tokenizer, most=tokens or USUAL_TOKENS)


def _write_views(
    report: AccuracyReport, html: Path | None, explorer: Path | None
) -> tuple[Path, ...]:
    """The page and the node data that were asked for; the files that were written."""
    written: tuple[Path, ...] = ()
    if html is not None:
        from adrenoc.base.files.outputs import write_atomically
        from adrenoc.pages.accuracy_page import accuracy_html

        write_atomically(html, accuracy_html(report))
        written += (html,)
    if explorer is not None:
        from adrenoc.pages.node_data import figures_of_accuracy, write_node_data

        written += write_node_data(explorer, figures_of_accuracy(report))
    return written


def _check_target(target: Target) -> None:
    from adrenoc.base.errors import TargetError

    if not target.host:
        here = f"host:{target.option}" if target.own else target.host_name
        raise TargetError(
            f"{target.name} is compiled for a phone, and check-accuracy runs the kernels on this "
            f"computer; expected {here}, which holds the same kernels",
            hint=f"adrenoc check-accuracy MODEL --device {here}",
        )


def _write(report: AccuracyReport, path: Path) -> None:
    """Save the policy; one that pins nothing where nothing is needed."""
    from adrenoc.cli.show_accuracy import finite
    from adrenoc.ir.precision_policy import PrecisionPolicy, write_policy

    (found,) = report.presets
    remedy = found.remedy
    if remedy is None and not found.passed:
        return
    policy = PrecisionPolicy(
        model_file=report.model,
        model_sha256=report.model_sha256,
        preset=found.preset,
        tolerance=report.tolerance,
        float32_tensors=remedy.float32_tensors if remedy else (),
        error_before=finite(found.error),
        error_after=finite(remedy.error_after if remedy else found.error),
    )
    write_policy(policy, path)


def _show(report: AccuracyReport, output: Path | None, show_all: bool) -> None:
    from adrenoc.cli import console
    from adrenoc.cli.show_accuracy import count_samples, show_decoder_layers

    for found in report.presets:
        console.blank()
        about = f"on {report.device}, {count_samples(report)}"
        console.print_title(f"{report.model} in {found.preset}", about)
        show_decoder_layers(found)
        shown = found.layers if show_all else _worth_showing(found)
        columns = ("layer", "operators", "largest", "own error", "error so far")
        console.print_table(columns, [_layer_row(layer) for layer in shown], right=columns[2:])
        for layer in found.suspects:
            for cause in layer.causes:
                text = f"{console.short(layer.name)}: {cause.evidence}"
                console.print_fields([(cause.name, text)])
        _show_verdict(report, found, output)


def _worth_showing(found: PresetAccuracy) -> list[LayerAccuracy]:
    """The layers with causes and the worst of the others, in execution order."""
    others = sorted((x for x in found.layers if not x.causes), key=lambda x: -x.local_error)
    kept = {id(x) for x in (*found.suspects, *others[: max(0, _WORST_LAYERS)])}
    return [layer for layer in found.layers if id(layer) in kept]


def _layer_row(layer: LayerAccuracy) -> tuple[str, ...]:
    from adrenoc.cli import console

    return (
        console.short(layer.name),
        " ".join(layer.operators),
        f"{layer.largest:.3g}",
        f"{layer.local_error:.1e}",
        f"{layer.total_error:.1e}",
    )


def _show_verdict(report: AccuracyReport, found: PresetAccuracy, output: Path | None) -> None:
    from adrenoc.cli import console
    from adrenoc.cli.show_accuracy import floor_text, list_score, show_points

    limit = f"(tolerance {report.tolerance:.0e})"
    said = "agrees: error" if found.passed else "is off by"
    why = f", {found.accepted_as}" if found.accepted_as else ""
    console.print_verdict(found.passed, f"{found.preset} {said} {found.error:.1e} {limit}{why}")
    console.print_fields([*list_score(found.score), ("floor", floor_text(found.floor))])
    if found.passed:
        return
    show_points(found)
    if found.left:
        console.print_fields([("untried", f"{', '.join(found.left)} (a larger --effort goes on)")])
    if found.starts_at:
        console.print_fields([("starts at", console.short(found.starts_at))])
    if found.remedy is None:
        why = f"float32 throughout is off by {found.error_in_float32:.1e}"
        if found.error_in_float32 > report.tolerance:
            why += ": not a matter of half"
        else:
            why += ": no policy that was tried holds the tolerance, compile with --preset fp32"
        console.print_fields([("remedy", why)])
        return
    _show_remedy(found.remedy, found.preset, output)


def _show_remedy(remedy: Remedy, preset: str, output: Path | None) -> None:
    from adrenoc.cli import console

    names, cost = remedy.float32_tensors, remedy.cost
    size = "none of them can be left out" if remedy.is_minimal else "--effort ended the search"
    if remedy.by_parts:
        size = "by what each part contributes and costs"
    moved, memory = cost.moved_bytes, cost.memory_bytes
    fields = [
        (
            "in float32",
            f"{', '.join(map(console.short, names))} "
            f"({console.count_of(len(names), 'tensor')}; {size})",
        ),
        ("error", f"{remedy.error_before:.1e} to {remedy.error_after:.1e}, {remedy.trials} trials"),
        ("memory", f"{console.size(memory[0])} to {console.size(memory[1])}"),
        ("bytes moved", f"{console.size(moved[0])} to {console.size(moved[1])} a run"),
    ]
    if cost.floor_us is not None:
        before, after = (us / 1000 for us in cost.floor_us)
        fields.append(("floor of time", f"{console.ms(before)} to {console.ms(after)}, roofline"))
    before, after = cost.measured_ms
    fields.append(("measured here", f"{console.ms(before)} to {console.ms(after)} a run"))
    name = output or f"--preset {preset} -o POLICY.json writes it"
    fields.append(("policy", f"{name}"))
    console.print_fields(fields)
