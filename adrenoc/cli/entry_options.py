"""Options that say which model file is meant and how it is entered."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.cli.model_params import FixedParam

if TYPE_CHECKING:
    pass


def entry_options() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--fix` and `--signature` as one argument `entry`, and `--dtype`, which picks the model."""
    fixed = click.option(
        "--fix",
        "fixed",
        type=FixedParam(),
        multiple=True,
        metavar="NAME=VALUE",
        help="Make an input that is a setting a constant, as a rate or a flag; an If on it is "
        "decided.  Repeat it for more inputs.",
    )
    signature = click.option(
        "--signature",
        metavar="NAME",
        help="Of a TFLite file with several signatures: which.  [default: the first graph's]",
    )

    dtype = click.option(
        "--dtype",
        metavar="KIND",
        help="Where MODEL is a folder of models (onnx/model*.onnx): of which numbers, such as "
        "fp16, q8 or q4.  [default: fp32]",
    )

    def gather(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(
            *args: Any,
            model: Path,
            fixed: tuple[tuple[str, str], ...],
            signature: str | None,
            dtype: str | None,
            **given: Any,
        ) -> Any:
            from adrenoc.importers.entry import Entry
            from adrenoc.importers.model_folders import choose_model

            entry = Entry(fixed=fixed, signature=signature or "")
            return command(*args, model=choose_model(model, dtype or ""), entry=entry, **given)

        return run

    return lambda command: fixed(signature(dtype(gather(command))))
