"""`adrenoc check`, how a model would run on a device before anything is compiled for it, and
`adrenoc check-accuracy`, where half precision goes wrong, why, and what mends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.errors import CheckFailedError, PolicyError, TargetError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.host.variables import read_number
from adrenoc.base.reporter import SilentReporter
from adrenoc.base.text.report import Fields
from adrenoc.base.text.spelling import quote_word
from adrenoc.cli import console
from adrenoc.cli.compile import list_targets_of
from adrenoc.cli.guarded import HeavyCommand, OutputPath, give_options, option
from adrenoc.cli.model_params import TARGET, TARGETS, limit_option
from adrenoc.cli.options import (
    DEVICE_HELP,
    EnteredModel,
    FiniteRange,
    ModelOptions,
    context_option,
    html_option,
    inputs_option,
    output_option,
    settings_option,
)
from adrenoc.ir.precision_policy import PrecisionPolicy, write_policy

if TYPE_CHECKING:
    from adrenoc.base.reporter import Reporter
    from adrenoc.check.accuracy.result import AccuracyReport
    from adrenoc.check.accuracy.samples import Wording
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
    from adrenoc.pages.check_page.page import device_parts, verdict_parts

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


@dataclass(frozen=True, kw_only=True)
class _Examined(ModelOptions):
    target: Target = option(
        "--device DEVICE",
        type=TARGET,
        default="host",
        help="Whose kernels to examine; they run here: host, host:a750.",
    )
    preset: str = option(
        "--preset",
        type=click.Choice(("mixed", "fp16", "both")),
        default="both",
        help="What to examine.",
    )
    settings: dict[str, Any] = settings_option(
        "int8_prompts=true (adrenoc presets).", "int8_prompts"
    )
    folder: Path | None = inputs_option(
        "Sets of inputs: .npz files, or .npy files for a model with one input.  "
        "[default: four sets, made for the model]"
    )
    tolerance: float = option(
        "--tolerance",
        type=FiniteRange(min=0.0, min_open=True),
        default=1e-2,
        help="Largest error over the range of an output; with --source largest divergence of the "
        "predictions in nats, the mean of all tokens.",
    )
    output: Path | None = output_option(
        "Write the policy there, for compile --precision-policy; needs one --preset.",
        metavar="POLICY.json",
    )
    text: Path | None = option(
        "--text FILE",
        help="Of a decoder: text to predict, token by token, by the tokenizer.json beside MODEL.  "
        "[default: seeded token numbers]",
    )
    tokens: int | None = option(
        "--tokens N",
        type=click.IntRange(min=2),
        help="Of a decoder: take the first N tokens.  [default: 32]",
    )
    source: Path | None = option(
        "--source BETTER.onnx",
        help="Of a decoder: the same with more bits.  Tells how far MODEL is from it, and by which "
        "weights; what halves do is another question, and is not looked at.",
    )
    mended: Path | None = option(
        "--mended FILE.onnx",
        type=OutputPath(is_file=True),
        help="Of --source: write MODEL there with the fewest of its worst weights taken from "
        "BETTER that hold the tolerance.",
    )
    html: Path | None = html_option(
        "Write a report: the error along the network, and each layer's own, the worst first"
    )

    def __post_init__(self) -> None:
        if self.preset == "both" and self.output is not None:
            raise click.UsageError(
                "-o takes the policy of one preset: --preset mixed or --preset fp16"
            )
        if self.mended is not None and self.source is None:
            raise click.UsageError("--mended is for --source")

    @property
    def wording(self) -> Wording | None:
        from adrenoc.check.accuracy.samples import USUAL_TOKENS, Wording

        if self.text is None and self.tokens is None:
            return None
        return Wording(text=self.text, most=self.tokens or USUAL_TOKENS)


@click.command("check-accuracy", cls=HeavyCommand)
@give_options(_Examined)
def check_accuracy_command(given: _Examined) -> int:
    """Compare each layer of MODEL in half precision with the reference, and find a remedy.

    The worst layers are shown; --html and --json hold all.
    """
    from adrenoc.pages.accuracy_page import accuracy_parts, finite, source_parts

    with console.show_progress() as reporter:
        if given.source is not None:
            from adrenoc.check.compare_sources import compare_with_source

            source = compare_with_source(
                given.model,
                given.source,
                wording=given.wording,
                tolerance=given.tolerance,
                mended=given.mended,
                reporter=reporter,
            )
            passed, plain = source.passed, asdict(source)
            parts = source_parts(source, given.mended)
        else:
            report = _examine(given, reporter)
            passed, plain, parts = report.passed, asdict(report), accuracy_parts(report)

    told_page = given.html is not None and given.source is None
    written = Fields(pairs=[("written", str(given.html))] if told_page else [])
    console.tell(finite(plain), parts, written)
    return 0 if passed else CheckFailedError.exit_code


def _examine(given: _Examined, reporter: Reporter) -> AccuracyReport:
    """Examine the model, and write the policy and the page that were asked for."""
    from adrenoc.check.accuracy.examine import check_accuracy
    from adrenoc.check.inputs import input_files

    _check_target(given.target)
    report = check_accuracy(
        given.model,
        reporter=reporter,
        target=given.target,
        presets=("mixed", "fp16") if given.preset == "both" else (given.preset,),
        files=() if given.folder is None else input_files(given.folder),
        shapes=given.shapes,
        tolerance=given.tolerance,
        effort=read_number("ADRENOC_EFFORT", 1.0, least=0.0, most=1000.0),
        int8_prompts=bool(given.settings.get("int8_prompts")),
        entry=given.entry,
        wording=given.wording,
    )
    if given.output is not None:
        _write(report, given.output)
    if given.html is not None:
        from adrenoc.pages.accuracy_page import accuracy_html

        write_atomically(given.html, accuracy_html(report))
    return report


def _check_target(target: Target) -> None:
    if not target.host:
        here = f"host:{target.option}" if target.own else target.host_name
        raise TargetError(
            f"{target.name} is compiled for a phone, and check-accuracy runs the kernels on this "
            f"computer; expected {here}, which holds the same kernels",
            hint=f"adrenoc check-accuracy MODEL --device {here}",
        )


def _write(report: AccuracyReport, path: Path) -> None:
    """Save the policy; one that pins nothing where nothing is needed."""
    from adrenoc.pages.accuracy_page import finite

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
