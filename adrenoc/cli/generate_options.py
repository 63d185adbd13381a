"""Options of `adrenoc run` for decoders: prompts, how tokens are picked, and the benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from adrenoc.bundle.sampling import Sampling
from adrenoc.cli.named_values import Said, apply_sample, check_sample, sample_option
from adrenoc.cli.records import option


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """What `run` is asked of a decoder; nothing where the first three are not said."""

    prompt: str | None = option(
        "--prompt TEXT", help="Generate text after this, by a bundle of a decoder."
    )
    ids: str | None = option(
        "--prompt-ids ID,ID,...", help="Generate tokens after these, by a bundle of a decoder."
    )
    bench: bool = option(
        "--bench",
        help="Of a decoder: the time of prompts, of the first token and of each further one.",
    )
    most: int = option(
        "--max-tokens",
        type=click.IntRange(min=1),
        default=32,
        help="Of a decoder: how many to generate.",
    )
    sample: Said = sample_option()
    encoders: tuple[Path, ...] = option(
        "--encoder BUNDLE",
        help="Of a decoder: run this first, and hand on what it makes; may be repeated.",
    )

    @property
    def is_for_decoder(self) -> bool:
        """Return whether the bundle is to be a decoder."""
        return self.prompt is not None or self.ids is not None or self.bench

    @property
    def option(self) -> str:
        """Return the option that asks for a decoder."""
        if self.bench:
            return "--bench"
        return "--prompt-ids" if self.prompt is None else "--prompt"

    def sampling(self, seed: int) -> Sampling:
        """Return how tokens are picked."""
        return apply_sample(Sampling(seed=seed), self.sample)

    def check(self, reference: Path | None) -> None:
        """Refuse what does not go together. Raises click.UsageError naming it."""
        if sum((self.prompt is not None, self.ids is not None, self.bench)) > 1:
            raise click.UsageError("--prompt, --prompt-ids and --bench exclude each other")
        if self.encoders and self.prompt is None and self.ids is None:
            raise click.UsageError("--encoder is for --prompt and --prompt-ids")
        if self.sample and self.prompt is None and self.ids is None:
            raise click.UsageError("--sample is for --prompt and --prompt-ids")
        check_sample(self.sampling(0), self.sample)
        if self.sample and reference is not None:
            raise click.UsageError(
                "--check compares with the likeliest tokens: it excludes --sample"
            )
