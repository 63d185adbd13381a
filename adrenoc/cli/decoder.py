"""Options of decoders with caches, `--context` and `--prefill`, beside those of shapes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from adrenoc.cli.shape_ranges import ShapeRange
    from adrenoc.compile.decoder_plan import DecoderPlan


def plan_shapes(
    model: Path,
    shapes: Sequence[tuple[str, tuple[int, ...]] | ShapeRange],
    context: int | None,
    prefill: str | None,
    *,
    accurate: bool,
) -> DecoderPlan:
    """The shapes to compile for: those of `--shape`, or those of a decoder whose past grows.

    Raises:
        click.UsageError: options that do not go together.
    """
    from adrenoc.cli.shape_ranges import buckets_of
    from adrenoc.compile.decoder_plan import USUAL_PREFILL, DecoderPlan, plan_decoder
    from adrenoc.importers.decoder_form import find_decoder

    form = None if shapes else find_decoder(model)
    if form is None:
        if context is not None or prefill is not None:
            raise click.UsageError(
                "--context and --prefill are for decoders with past and present keys and values, "
                "without --shape"
            )
        return DecoderPlan(buckets=tuple(buckets_of(shapes)), states=(), decisions=())
    if accurate:
        raise click.UsageError("--accuracy is for models without caches")
    lengths: tuple[int, ...] = USUAL_PREFILL
    if prefill is not None:
        lengths = parse_numbers(prefill, "lengths, such as 16,128", least=1)
    return plan_decoder(form, context, lengths)


def parse_numbers(text: str, what: str, *, least: int) -> tuple[int, ...]:
    """Read `16,128`, whole numbers from `least` on; `what` names them with an example.

    Raises:
        click.BadParameter: it is no such list.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) >= least for part in parts):
        raise click.BadParameter(f"{text!r} is no list of {what}")
    return tuple(int(part) for part in parts)
