"""Options that say how a model file is entered: `--fix` and `--signature`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from adrenoc.cli.model_params import FixedParam

if TYPE_CHECKING:
    from adrenoc.importers.entry import Entry


def entry_options() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--fix` and `--signature`: how a model file is entered, as one argument `entry`."""
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

    def gather(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(
            *args: Any, fixed: tuple[tuple[str, str], ...], signature: str | None, **given: Any
        ) -> Any:
            from adrenoc.importers.entry import Entry

            return command(*args, entry=Entry(fixed=fixed, signature=signature or ""), **given)

        return run

    return lambda command: fixed(signature(gather(command)))


def check_no_entry(entry: Entry) -> None:
    """Refuse what is for bundles alone."""
    if any(entry.options().values()):
        raise click.UsageError("--fix and --signature are for bundles, not for folders of C")
