"""The README says what is so: exit codes, commands, options, devices, presets."""

from __future__ import annotations

import re
from pathlib import Path

import click

from adrenoc.cli.main import cli
from adrenoc.errors import AdrenocError
from adrenoc.options import list_presets
from adrenoc.target.target import list_targets, load_target
from tests.unit.test_layers import LAYERS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def _errors(kind: type[AdrenocError]) -> list[type[AdrenocError]]:
    return [kind, *(deeper for sub in kind.__subclasses__() for deeper in _errors(sub))]


def _row(error: type[AdrenocError]) -> str:
    meaning = (error.__doc__ or "").strip().splitlines()[0].rstrip(".")
    return f"| {error.exit_code} | `{error.__name__}` | {meaning} |"


def _all_commands(command: click.Command) -> list[click.Command]:
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return [command, *(deeper for sub in inner for deeper in _all_commands(sub))]


def test_exit_codes() -> None:
    rows = [_row(e) for e in sorted(_errors(AdrenocError)[1:], key=lambda e: e.exit_code)]
    seen = [line for line in README.splitlines() if re.match(r"\| \d\d \| `\w+Error` \|", line)]
    assert seen == rows, "paste into README.md:\n" + "\n".join(rows)


def test_commands_and_options_exist() -> None:
    assert set(re.findall(r"^\| `adrenoc ([\w-]+)", README, re.M)) == set(cli.commands)
    known = {
        option
        for command in _all_commands(cli)
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    text = re.sub(r"`scripts/[^`]*`", "", README)  # those have options of their own
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text))
    assert named - known - {"--help", "--version"} == set()


def test_presets_and_devices_are_named() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", README, re.M)) >= {p.name for p in list_presets()}
    gpus = [t.name for t in list_targets() if t.name.startswith("adreno:a")]
    assert f"from {load_target(gpus[0]).title} to {gpus[-1].removeprefix('adreno:a')}" in README


def test_links_lead_somewhere() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
            assert (ROOT / target).exists(), f"{name} links to {target}"


def test_named_files_exist() -> None:
    """CONTRIBUTING names many places in the tree; each has to be there."""
    for named in re.findall(
        r"`((?:adrenoc|targets|presets|tests|scripts)/[\w./-]*)`", CONTRIBUTING
    ):
        if not re.search(r"[A-Z]{4}", named):  # VERB, NAME and FAMILY are to be filled in
            assert (ROOT / named).exists(), f"CONTRIBUTING.md names {named}"


def test_stages_are_those_of_the_table() -> None:
    """Read as text: the table itself cannot be imported without TVM."""
    source = (ROOT / "adrenoc" / "pipeline" / "stages.py").read_text(encoding="utf-8")
    row = r"^    (?:Stage|graph_stage|placed_stage)\(\s+(?:name=)?\"(\w+)\""
    stages = re.findall(row, source, re.M)
    assert stages
    assert re.findall(r"^\| (\w+) \| [^|]+ \| `", CONTRIBUTING, re.M) == stages


def test_modules_are_those_of_the_layers() -> None:
    block = CONTRIBUTING.split("beside the rooms:\n\n```\n")[1].split("```")[0]
    shown = {name for line in block.splitlines() for name in re.split(r",? +", line[:40]) if name}
    units = {unit.partition(".")[0] for line in LAYERS for unit in line}
    assert shown == units - {"__main__"}, "CONTRIBUTING.md shows other layers than test_layers.py"
