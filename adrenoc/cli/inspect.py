"""`adrenoc inspect`: what is in a bundle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.base.errors import BundleError
from adrenoc.base.text.spelling import did_you_mean, printable, quote_word
from adrenoc.cli import console
from adrenoc.cli.firmware import inspect_if_firmware
from adrenoc.cli.guarded import Command
from adrenoc.cli.records import argument, give_options, option
from adrenoc.cli.terminal import say
from adrenoc.cli.write_views import refuse_firmware

if TYPE_CHECKING:
    from adrenoc.bundle.bundle import Bundle


@dataclass(frozen=True, kw_only=True)
class _Inspected:
    bundle: Path = argument()
    kernel: str | None = option(
        "--kernel NAME", help="Print the source of one kernel and nothing else."
    )


@click.command("inspect", cls=Command)
@give_options(_Inspected)
def inspect_command(given: _Inspected) -> None:
    """Show what is in BUNDLE.

    Inputs and outputs, target and options, kernels, memory, versions, digests; of a folder for a
    core its layers and what they take.
    """
    from adrenoc.bundle.buckets import read_signatures
    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.bundle.editions import read_editions
    from adrenoc.bundle.manifest import to_plain
    from adrenoc.pages.bundle_page import bundle_parts

    if given.kernel is None and inspect_if_firmware(given.bundle):
        return
    refuse_firmware(given.bundle)
    opened = open_bundle(given.bundle)
    if given.kernel is not None:
        say(printable(_source(opened, given.kernel), lines=True))
        return
    editions = read_editions(opened)
    more: dict[str, object] = {"editions": editions} if editions else {}
    if signatures := read_signatures(opened):
        more["signatures"] = signatures
    console.tell({**to_plain(opened.manifest), **more}, bundle_parts(opened))


def _source(bundle: Bundle, name: str) -> str:
    from adrenoc.bundle.editions import name_parts

    # Of several parts with such a kernel, that of the largest shapes, and of any Adreno.
    parts = name_parts(bundle).values()
    sources = {kernel.name: kernel.source for part in parts for kernel in part.kernels()}
    if name not in sources:
        raise BundleError(
            f'{bundle.path} has no kernel "{name}"{did_you_mean(name, list(sources))}',
            hint=f"adrenoc inspect {quote_word(bundle.path)} lists its kernels",
        )
    return sources[name]
