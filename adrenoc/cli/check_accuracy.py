"""`adrenoc check-accuracy`: where half precision goes wrong, why, and what mends it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.errors import CheckFailedError, TargetError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.host.variables import read_number
from adrenoc.base.text.report import Fields
from adrenoc.cli import console
from adrenoc.cli.guarded import HeavyCommand, OutputPath
from adrenoc.cli.model_params import TARGET
from adrenoc.cli.options import (
    FiniteRange,
    ModelOptions,
    html_option,
    inputs_option,
    output_option,
    settings_option,
)
from adrenoc.cli.records import give_options, option
from adrenoc.ir.precision_policy import PrecisionPolicy, write_policy

if TYPE_CHECKING:
    from adrenoc.base.reporter import Reporter
    from adrenoc.check.accuracy.passage import Wording
    from adrenoc.check.accuracy.result import AccuracyReport
    from adrenoc.target.target import Target


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
        """Return what a decoder is examined on, None where nothing was asked for."""
        from adrenoc.check.accuracy.passage import USUAL_TOKENS, Wording

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
