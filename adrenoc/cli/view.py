"""`adrenoc view`: the report of a bundle in the browser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from adrenoc.base.text.spelling import quote_word
from adrenoc.cli.guarded import Command, InputPath
from adrenoc.cli.options import output_option
from adrenoc.cli.records import argument, give_options


@dataclass(frozen=True, kw_only=True)
class _Viewed:
    bundle: Path = argument(type=InputPath())
    output: Path | None = output_option("Write the page there, and open nothing.")


@click.command("view", cls=Command)
@give_options(_Viewed)
def view_command(given: _Viewed) -> int:
    """Show the report of BUNDLE in the browser: a file, no server.

    Figures, what each launch costs, kernels with their texts, memory, decisions.
    """
    from adrenoc.base.files.outputs import write_atomically
    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.cli import console
    from adrenoc.pages.bundle_page import bundle_html

    refuse_firmware(given.bundle)
    opened = open_bundle(given.bundle)
    path = given.output or _kept_page(opened.manifest.name)
    write_atomically(path, bundle_html(opened).encode())
    shown = given.output is None and _show_in_browser(path)

    def show() -> None:
        console.print_fields([("report", str(path))])
        if given.output is None and not shown:
            console.print_fields([("", "no browser could be started here: open the file yourself")])

    return console.tell({"report": str(path), "opened": shown}, show)


def _kept_page(name: str) -> Path:
    """Return where an unnamed page lies: a browser reads it after this process has ended."""
    from adrenoc.base.files.outputs import cache_errors
    from adrenoc.base.files.read import cache_folder

    folder = cache_folder() / "pages"
    with cache_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.html"


def _show_in_browser(path: Path) -> bool:
    import webbrowser

    try:
        return webbrowser.open(path.resolve().as_uri())
    except webbrowser.Error:
        return False


def refuse_firmware(path: Path) -> None:
    """Refuse a folder of C, which is no bundle.

    Raises:
        BundleError: it is one.
    """
    from adrenoc.base.errors import BundleError
    from adrenoc.firmware.mcu.folder import is_firmware

    if is_firmware(path):
        raise BundleError(
            f"{path} is a folder of C for a core; expected a bundle of OpenCL kernels",
            hint=f"adrenoc firmware run {quote_word(path)}, or adrenoc inspect {quote_word(path)}",
        )
