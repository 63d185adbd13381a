"""Options for models that keep something from run to run."""

from __future__ import annotations

import click

from adrenoc.cli.guarded import InputPath
from adrenoc.cli.options import Decorator, join_options


def context_option(more: str = "") -> Decorator:
    """`--context`: the rows of caches; `more` is what else is to be known of them."""
    return click.option(
        "--context",
        type=click.IntRange(min=1),
        metavar="N",
        help=f"Of a decoder with caches: their rows{more}.  [default: genai_config.json's, 4096 at "
        "most]",
    )


def int8_prompts_option() -> Decorator:
    """`--int8-prompts`: products of many tokens by bytes."""
    return click.option(
        "--int8-prompts/--no-int8-prompts",
        default=None,
        help="Round the tokens of prompts to 8 bits, 32 numbers with a scale, where the GPU has "
        "dot products and weights have 2, 4 or 8 bits: faster prompts, less exact.  "
        "[default: --no-int8-prompts]",
    )


def decoder_options() -> Decorator:
    """Caches, prompts, the tokenizer, and states."""
    return join_options(
        context_option(),
        click.option(
            "--prefill",
            metavar="N,N,...",
            help="Of a decoder: tokens of a prompt that one run takes.  [default: 16,128]",
        ),
        int8_prompts_option(),
        click.option(
            "--tokenizer",
            type=InputPath(),
            metavar="FILE",
            help="Of a decoder: the tokenizer.json that goes into the bundle.  [default: the one "
            "beside MODEL, or in its container]",
        ),
        click.option(
            "--state",
            "kept",
            multiple=True,
            metavar="PAST=PRESENT",
            help="Keep an output as the next run's input, in one memory; a * stands for many.  "
            "`none`: keep nothing.  [default: what exporters' names say]",
        ),
    )
