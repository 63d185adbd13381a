"""Options of `adrenoc run` for decoders: prompts, how tokens are picked, and the benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.cli.guarded import InputPath
from adrenoc.cli.options import Decorator, FiniteRange, join_options

if TYPE_CHECKING:
    from adrenoc.device.generate import Sampling

_MOST_K = 1 << 30

_OPTIONS = (
    click.option(
        "--prompt", metavar="TEXT", help="Generate text after this, by a bundle of a decoder."
    ),
    click.option(
        "--tokenizer",
        type=InputPath(),
        metavar="FILE",
        help="Of --prompt: the model's tokenizer.json.  [default: the one in the bundle]",
    ),
    click.option(
        "--prompt-ids",
        metavar="ID,ID,...",
        help="Generate tokens after these, by a bundle of a decoder.",
    ),
    click.option(
        "--max-tokens",
        type=click.IntRange(min=1),
        default=32,
        show_default=True,
        help="Of a decoder: how many to generate.",
    ),
    click.option(
        "--temperature",
        type=FiniteRange(min=0.0, max=100.0),
        default=0.0,
        help="Of a decoder: draw tokens by --seed; 0 takes the likeliest.  [default: 0]",
    ),
    click.option(
        "--top-k",
        type=click.IntRange(min=0, max=_MOST_K),
        default=0,
        metavar="K",
        help="Draw among the K likeliest tokens.  [default: all]",
    ),
    click.option(
        "--top-p",
        type=FiniteRange(min=1e-4, max=1.0),
        default=1.0,
        metavar="P",
        help="Draw among the fewest likeliest tokens whose probability reaches P.  [default: all]",
    ),
    click.option(
        "--encoder",
        "encoders",
        type=InputPath(),
        multiple=True,
        metavar="BUNDLE",
        help="Of a decoder: run this first, and hand on what it makes; may be repeated.",
    ),
    click.option(
        "--bench",
        is_flag=True,
        help="Of a decoder: the time of prompts, of the first token and of each further one.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the options say; nothing is asked of a decoder where all of the first three are not."""

    prompt: str | None
    ids: str | None
    bench: bool
    tokenizer: Path | None
    most: int
    temperature: float
    top_k: int
    top_p: float
    encoders: tuple[Path, ...] = ()

    @property
    def is_for_decoder(self) -> bool:
        """Whether the bundle is to be a decoder."""
        return self.prompt is not None or self.ids is not None or self.bench

    @property
    def option(self) -> str:
        """The option that asks for a decoder."""
        if self.bench:
            return "--bench"
        return "--prompt-ids" if self.prompt is None else "--prompt"

    def sampling(self, seed: int) -> Sampling:
        """How tokens are picked."""
        from adrenoc.device.generate import Sampling

        return Sampling(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, seed=seed)

    def check(self, reference: Path | None) -> None:
        """Refuse what does not go together.

        Raises:
            click.UsageError: naming it.
        """
        if sum((self.prompt is not None, self.ids is not None, self.bench)) > 1:
            raise click.UsageError("--prompt, --prompt-ids and --bench exclude each other")
        if self.encoders and self.prompt is None and self.ids is None:
            raise click.UsageError("--encoder is for --prompt and --prompt-ids")
        drawn = self.temperature > 0
        if self.tokenizer is not None and self.prompt is None:
            raise click.UsageError("--tokenizer is for --prompt")
        if (drawn or self.top_k or self.top_p < 1) and self.prompt is None and self.ids is None:
            raise click.UsageError(
                "--temperature, --top-k and --top-p are for --prompt and --prompt-ids"
            )
        if not drawn and (self.top_k or self.top_p < 1):
            raise click.UsageError("--top-k and --top-p are for --temperature above 0")
        if drawn and reference is not None:
            raise click.UsageError(
                "--check compares with the likeliest tokens: it excludes --temperature"
            )


def generate_options() -> Decorator:
    """All of them."""
    return join_options(*_OPTIONS)


def take_asked(options: dict[str, Any]) -> Asked:
    """Read these options, and take them out of all that a command was given."""
    return Asked(
        prompt=options.pop("prompt"),
        ids=options.pop("prompt_ids"),
        bench=options.pop("bench"),
        tokenizer=options.pop("tokenizer"),
        most=options.pop("max_tokens"),
        temperature=options.pop("temperature"),
        top_k=options.pop("top_k"),
        top_p=options.pop("top_p"),
        encoders=options.pop("encoders"),
    )
