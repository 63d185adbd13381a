"""`adrenoc view`: the report of a bundle in the browser."""

from __future__ import annotations

from pathlib import Path

import click

from adrenoc.base.text.spelling import quote_word
from adrenoc.cli.guarded import Command, OutputPath, wants_json
from adrenoc.cli.options import path_argument


@click.command("view", cls=Command)
@path_argument("bundle")
@click.option(
    "-o",
    "--output",
    type=OutputPath(is_file=True),
    metavar="FILE",
    help="Write the page there, and open nothing.",
)
def view_command(bundle: Path, output: Path | None) -> None:
    """Show the report of BUNDLE in the browser: a file, no server.

    Figures, what each launch costs, kernels with their texts, memory, decisions.
    """
    as_json = wants_json()
    from adrenoc.base.files.outputs import write_atomically
    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.cli import console
    from adrenoc.pages.bundle_page import bundle_html

    refuse_firmware(bundle)
    opened = open_bundle(bundle)
    html = bundle_html(opened).encode()
    path = output or _kept_page(opened.manifest.name)
    write_atomically(path, html)
    shown = output is None and _show_in_browser(path)
    if as_json:
        console.print_json({"report": str(path), "opened": shown})
        return
    console.print_fields([("report", str(path))])
    if output is None and not shown:
        console.print_fields([("", "no browser could be started here: open the file yourself")])


def _kept_page(name: str) -> Path:
    """Where a page lies that nobody named: a browser reads it after this process has ended."""
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
