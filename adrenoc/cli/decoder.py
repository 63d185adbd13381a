"""Lists of numbers on the command line of decoders."""

from __future__ import annotations

import click


def parse_numbers(text: str, what: str, *, least: int) -> tuple[int, ...]:
    """Read `16,128`, whole numbers from `least` on; `what` names them with an example.

    Raises:
        click.BadParameter: it is no such list.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) >= least for part in parts):
        raise click.BadParameter(f"{text!r} is no list of {what}")
    return tuple(int(part) for part in parts)
