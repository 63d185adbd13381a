"""Write the reference pages into the site as MkDocs builds it: nothing of them is committed."""

import sys
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.reference import commands, interfaces, operators, tables


@cache
def pages() -> dict[str, str]:
    """Return every generated page: its path below docs/ -> its Markdown."""
    made = {**commands.pages(), **tables.pages(ROOT), **operators.pages(), **interfaces.pages(ROOT)}
    return {f"reference/{path}": text for path, text in made.items()}


def on_config(config: Any) -> Any:
    """Put the pages of each generated folder below its first one, where the menu names that."""
    reference = next(part["Reference"] for part in config.nav if "Reference" in part)
    for place, name in enumerate(reference):
        folder = PurePosixPath(name).parent
        inner = [path for path in pages() if PurePosixPath(path).parent == folder]
        if PurePosixPath(name).name == "index.md" and name in inner:
            inner.remove(name)
            reference[place] = {folder.name.capitalize(): [name, *inner]}
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Add the generated pages to those of docs/."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files
