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
    return plan_decoder(form, context, USUAL_PREFILL if prefill is None else parse_lengths(prefill))


def parse_lengths(text: str) -> tuple[int, ...]:
    """Read `16,128`.

    Raises:
        click.BadParameter: it is no list of whole numbers above zero.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"{text!r} is no list of lengths, such as 16,128")
    return tuple(int(part) for part in parts)
