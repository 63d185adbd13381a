"""Tables and texts as Markdown; exit codes, presets, and facts about devices with their sources."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from adrenoc.base.errors import AdrenocError
from adrenoc.base.files.read import read_toml


def cell(text: object) -> str:
    """Escape what a cell of a table cannot hold."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def code(text: object) -> str:
    """Quote a word of code for a cell of a table, where its bars end no cell."""
    return f"`{' '.join(str(text).split())}`"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out rows, whose cells are escaped already."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def page(title: str, *parts: str) -> str:
    """Join a title and the parts of a page."""
    return "\n\n".join((f"# {title}", *(part.strip("\n") for part in parts))) + "\n"


_FOLDERS = {
    "gpu": "GPUs",
    "soc": "Snapdragons",
    "stand_ins": "Stand-ins to time kernels on",
    "mcu": "Microcontrollers",
    "cpu": "Application processors",
    "cost": "What estimates of kernels reckon with",
}
"""Folder below targets/ -> the title of its page; a new one is shown under its own name."""


def pages(root: Path) -> dict[str, str]:
    """Return the pages of exit codes, presets and every folder of targets/."""
    folders = sorted(path for path in (root / "targets").iterdir() if path.is_dir())
    targets = {folder.name: _FOLDERS.get(folder.name, folder.name) for folder in folders}
    listed = "\n".join(f"- [{title}]({name}.md)" for name, title in targets.items())
    intro = (
        "Each device is one file, in which every value names its source; what nobody has published "
        "is left out, never guessed. `adrenoc targets` lists the devices, `adrenoc targets DEVICE` "
        "shows one."
    )
    return {
        "exit-codes.md": _exit_codes(),
        "presets.md": _presets(root / "presets"),
        "targets/index.md": page("Targets", intro, listed),
        **{
            f"targets/{folder.name}.md": page(targets[folder.name], *_files(folder))
            for folder in folders
        },
    }


def errors(kind: type[AdrenocError] = AdrenocError) -> Iterator[type[AdrenocError]]:
    """Yield every kind of error below this one."""
    for sub in kind.__subclasses__():
        yield sub
        yield from errors(sub)


def _exit_codes() -> str:
    rows = [
        (str(error.exit_code), code(error.__name__), cell((error.__doc__ or "").split("\n")[0]))
        for error in sorted(errors(), key=lambda error: error.exit_code)
    ]
    intro = (
        "Errors are one sentence and one command to try next, on stderr; with `--json` an object "
        "on stdout. Nothing half-written is left behind. 0 is success, 1 a defect of adrenoc, 2 a "
        "wrong command line, 130 an interruption, 129 and 143 SIGHUP and SIGTERM."
    )
    return page("Exit codes", intro, table(("code", "error", "meaning"), rows))


def _presets(folder: Path) -> str:
    files = {path.stem: read_toml(path) for path in folder.glob("*.toml")}
    options = sorted({key for preset in files.values() for key in preset["options"]})
    rows = [
        (
            code(name),
            cell(files[name]["title"]),
            *(_shown(files[name]["options"].get(o)) for o in options),
        )
        for name in sorted(files)
    ]
    intro = "`--preset NAME` sets these options; what an empty cell leaves alone keeps its default."
    return page("Presets", intro, table(("preset", "means", *map(code, options)), rows))


def _files(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.toml")):
        content = read_toml(path)
        sources = content.pop("sources", {})
        yield f"## {path.stem}"
        title = content.pop("title", None)
        if title is not None:
            yield str(title)
        rows = [
            (code(key), _shown(value), cell(_source(source, sources)))
            for key, value, source in _facts("", content)
        ]
        yield table(("fact", "value", "source"), rows)


def _facts(prefix: str, content: Mapping[str, Any]) -> Iterator[tuple[str, object, str]]:
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and "value" in value:
            yield name, value["value"], value.get("source", "")
        elif isinstance(value, dict):
            yield from _facts(f"{name}.", value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for row in value:
                yield from _facts(f"{name}.", row)
        else:
            yield name, value, ""


def _source(text: str, sources: Mapping[str, Any]) -> str:
    """Spell out a source that stands for one of the file's list (`@mesa`)."""
    for name in sorted(sources, key=len, reverse=True):
        source = sources[name]
        said = source if isinstance(source, str) else ", ".join(map(str, source.values()))
        text = text.replace(f"@{name}", said)
    return text


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return cell(", ".join(map(str, value)))
    return "" if value is None else cell(value)
