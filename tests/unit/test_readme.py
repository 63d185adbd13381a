"""What the README, the pages and the rows of acceptance promise."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import cast

import click
import pytest

from adrenoc.base.errors import AdrenocError
from adrenoc.base.files.read import read_toml
from adrenoc.base.host.variables import VARIABLES
from adrenoc.cli.main import cli
from adrenoc.ir.options import list_presets
from adrenoc.target.target import list_targets
from scripts.reference import commands, tables
from tests.commands import run_program
from tests.opencl.known import known_drivers, known_failures
from tests.sources import load_script, texts

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    )
}
FOR_USERS = {name: text for name, text in PAGES.items() if name != "CONTRIBUTING.md"}
OF_OTHERS = {"--", "--help", "--json", "--version"}
"""Words of the prose that are no option of adrenoc, or of every command."""


def _all_commands(command: click.Command) -> list[click.Command]:
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return [command, *(deeper for sub in inner for deeper in _all_commands(sub))]


def _options(command: click.Command) -> set[str]:
    return {
        option
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in (*parameter.opts, *parameter.secondary_opts)
    } | {"--help", "--json", "--version"}


def _typed(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of adrenoc in a page's blocks of shell, from its name on."""
    for block in re.findall(r"^```sh[^\n]*\n(.*?)^```", text, re.M | re.S):
        for line in re.split(r"\n|&& ", block.replace("\\\n", " ")):
            words = shlex.split(line, comments=True)
            if "adrenoc" in words:
                yield words[words.index("adrenoc") + 1 :]


def test_lengths():
    assert len(PAGES["README.md"].splitlines()) <= 150
    assert len(PAGES["CONTRIBUTING.md"].splitlines()) <= 200


def test_status_is_on_the_first_screen():
    assert "no phone has run" in "\n".join(PAGES["README.md"].splitlines()[:20]).lower()


@pytest.mark.parametrize("name", FOR_USERS)
def test_commands_that_are_typed_exist(name):
    for typed in _typed(FOR_USERS[name]):
        words, command = typed, cast(click.Command, cli)
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            assert words[0] in command.commands, f"{name}: adrenoc has no {words[0]}"
            command, words = command.commands[words[0]], words[1:]
        named = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert named <= _options(command), f"{name}: options of {command.name}"


def test_options_of_the_prose_exist():
    known = {option for command in _all_commands(cli) for option in _options(command)}
    for sample in (ROOT / "docs/samples").rglob("*.py"):  # as argparse is told them
        known |= set(re.findall(r'"(--[a-z][a-z-]+)"', sample.read_text("utf-8")))
    for name, text in FOR_USERS.items():
        if name.startswith("docs/measurements/"):
            continue  # scripts measured those, which have options of their own
        prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        quoted = [span for span in re.findall(r"`([^`]+)`", prose) if re.match(r"-|adrenoc ", span)]
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", " ".join(quoted)))
        assert named <= known, f"{name} names options that are not there"


def test_blocks_that_no_test_runs_say_why():
    for name, text in FOR_USERS.items():
        for header in re.findall(r"^```sh(.*)$", text, re.M):
            assert re.fullmatch(r'( title="Not run in a test: [^"]+")?', header), (
                f"{name}: {header}"
            )


def test_pages_of_the_reference_hold_every_command_and_option():
    pages = commands.pages()
    for name, command in cli.commands.items():
        text = pages[f"commands/{name}.md"]
        shown = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", text))
        hidden = {
            option
            for inner in _all_commands(command)
            for parameter in inner.params
            if getattr(parameter, "hidden", False)
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        long = {
            option
            for inner in _all_commands(command)
            for option in _options(inner) - OF_OTHERS
            if option.startswith("--")
        }
        assert long - hidden <= shown, name


def test_pages_of_the_reference_hold_errors_presets_and_devices():
    pages = tables.pages(ROOT)
    for error in tables.errors(AdrenocError):
        assert f"| {error.exit_code} | `{error.__name__}` | " in pages["exit-codes.md"]
    for preset in list_presets():
        assert f"| `{preset.name}` |" in pages["presets.md"]
    gpus = [
        t.name.removeprefix("adreno:a") for t in list_targets() if t.name.startswith("adreno:a")
    ]
    for gpu in gpus:
        assert f"\n## {gpu}\n" in pages["targets/gpu.md"]
    of_phones = [gpu for gpu in gpus if gpu[0].isdigit()]
    assert f"Adreno {of_phones[0]} to {of_phones[-1]}" in PAGES["docs/how-to/devices.md"]
    assert f"Adreno {of_phones[0]} to {of_phones[-1]}" in PAGES["README.md"]


def test_links_lead_somewhere():
    """Those of docs/ among each other are `mkdocs build --strict`'s."""
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
            assert (ROOT / target).exists(), f"{name} links to {target}"


@pytest.mark.parametrize("name", PAGES)
def test_named_files_exist(name):
    for named in re.findall(
        r"(?:^|[` :])((?:adrenoc|targets|presets|tests|scripts)/[\w./-]*[\w/])(?![\w<*{])",
        PAGES[name],
        re.M,
    ):
        if not re.search(r"[A-Z]{4}", named):  # VERB, NAME and FAMILY are to be filled in
            assert (ROOT / named).exists(), f"{name} names {named}"


def test_stages_are_those_of_the_table():
    """Read as text: the table itself cannot be imported without TVM."""
    source = (ROOT / "adrenoc" / "compile" / "pipeline.py").read_text(encoding="utf-8")
    row = r"^    (?:Stage|graph_stage|placed_stage)\(\s*(?:name=)?\"(\w+)\""
    stages = re.findall(row, source, re.M)
    assert stages
    shown = re.findall(r"^\| (\w+) \| [^|]+ \| `", PAGES["docs/explanation/pipeline.md"], re.M)
    assert shown == stages


def test_variables_that_are_read_are_listed():
    listed = set(re.findall(r"`([A-Z][A-Z0-9_]+)`", PAGES["docs/reference/environment.md"]))
    form = re.compile(
        r"(?:environ\.(?:get|setdefault)\(|environ\[|getenv\()\s*\"([A-Z][A-Z0-9_]+)\"", re.M
    )
    suffixes = {".py", ".cc", ".h"}
    read = {
        name
        for path in (ROOT / "adrenoc").rglob("*")
        if path.suffix in suffixes
        for name in form.findall(path.read_text(encoding="utf-8"))
    }
    assert "ADRENOC_CACHE_DIR" in read and read | set(VARIABLES) <= listed


def test_the_map_shows_the_wings_in_their_order():
    block = PAGES["CONTRIBUTING.md"].split("click, rich and adbutils:\n\n```\n")[1].split("```")[0]
    shown = [line.split()[0] for line in block.splitlines()]
    contracts = read_toml(ROOT / "pyproject.toml")["tool"]["importlinter"]["contracts"]
    layers = contracts[0]["layers"][1:]
    assert shown == [wing for line in layers for wing in line.split(" | ")]


SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "accept"


@pytest.fixture(scope="module")
def accept() -> ModuleType:
    return load_script("accept")


def test_each_row_names_who_promised_it(accept):
    rows = accept.read_rows()
    assert len(rows) > 50
    assert all(row.run and row.promise.startswith(("README: ", "issue ")) for row in rows)


@pytest.mark.parametrize(
    ("row", "code", "why"),
    [
        ({}, 0, ""),
        ({"code": 33}, 33, ""),
        ({"shows": ("copies",)}, 0, "does not say /copies/"),
        ({"hides": ("launches",)}, 0, "says /launches/"),
        ({}, 3, "exit code 3, expected 0: launches 5"),
        ({"code": 33}, 0, "exit code 0, expected 33"),
        ({"figures": ({"find": r"launches (\d+)", "at_most": 4},)}, 0, "5 is more than 4"),
        ({"figures": ({"find": r"launches (\d+)", "at_least": 6},)}, 0, "5 is less than 6"),
        ({"figures": ({"find": r"copies (\d+)", "at_most": 4},)}, 0, "does not say /copies"),
        ({}, None, "not done after 10 min"),
    ],
)
def test_a_promise_that_is_not_kept_fails(accept, monkeypatch, tmp_path, row, code, why):
    monkeypatch.setattr(accept.tempfile, "gettempdir", lambda: "/nowhere")
    made = accept.Row(name="r", promise="p", run=("true",), **row)
    seen = accept.verdict_on(made, code, "launches 5\n", tmp_path)
    assert seen.verdict == ("FAILED" if why else "passed")
    assert why in seen.why


def test_a_python_without_packages_gets_the_command_to_type():
    bare = run_program([sys.executable, "-S", str(SCRIPT), "quickstart", "--keep", "a b"])
    assert (bare.returncode, bare.stdout) == (2, "")
    said, command = bare.stderr.splitlines()
    assert said.startswith(f"error: {sys.executable} has no package onnx")
    assert command == f"  try: {SCRIPT.with_name('test')} acceptance quickstart --keep 'a b'"


def _subclasses(kind: type[AdrenocError]) -> list[type[AdrenocError]]:
    direct = kind.__subclasses__()
    return direct + [deeper for subclass in direct for deeper in _subclasses(subclass)]


def test_all_live_in_one_module_with_codes_of_their_own():
    kinds = [AdrenocError, *_subclasses(AdrenocError)]
    assert {kind.__module__ for kind in kinds} == {"adrenoc.base.errors"}
    codes = [vars(kind)["exit_code"] for kind in kinds]
    assert len(set(codes)) == len(codes)
    assert min(codes) >= 10
    # Above 125 a shell reads signals and its own failures.
    assert max(codes) < 126


def test_every_one_is_raised_somewhere():
    made = {name for text in texts().values() for name in re.findall(r"(?<!class )\b(\w+)\(", text)}
    unused = {kind.__name__ for kind in _subclasses(AdrenocError)} - made
    assert not unused, f"never raised: {unused}"


def test_message_and_hint_are_kept():
    error = AdrenocError("what and where", hint="adrenoc doctor")
    assert str(error) == error.message == "what and where"
    assert error.hint == "adrenoc doctor"


def test_known_failures_are_tests():
    assert known_drivers() == ("rusticl",)
    for driver in known_drivers():
        known = known_failures(driver)
        assert known
        for test, why in known.items():
            path, _, name = test.partition("::")
            assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), test
            assert why.startswith(f"{driver}: ")
    assert known_failures("") == {}


MOST_COMPARISONS = 14
"""Outside of the families: `Node`'s own predicates, and what has to know each name."""


_COMPARED = re.compile(
    r"\.op (?:[!=]=|in|not in) |[!=]= [\w.\[\]]+\.op\b"
    r"|\.op\.(?:starts|ends)with\(|match [\w.]+\.op:"
)
"""`==`, `in`, `match` or `startswith` of a node's operator, whatever the node is called."""


def _comparisons(text: str) -> list[str]:
    """The lines that compare a node's operator; TVM's calls have an attribute of this name, too."""
    lines = text.splitlines()
    return [line for line in lines if _COMPARED.search(line) and "Op.get(" not in line]


def test_operators_are_told_apart_by_their_records():
    found = [
        f"{path}: {line}"
        for path, text in texts().items()
        if path.parts[:2] != ("kernels", "families")
        for line in _comparisons(text)
    ]
    assert len(found) <= MOST_COMPARISONS, found


@pytest.mark.parametrize(
    "text",
    [
        'node.op == "conv2d"',
        'node.op not in ("sum", "mean")',
        'node.op.startswith("conv")',
        'graph.producers[name].op != "matmul"',
        'match node.op:\n    case "map":\n        pass',
    ],
)
def test_a_comparison_is_found_whatever_it_looks_like(text):
    assert len(_comparisons(text)) == 1


def test_a_call_of_tvm_is_none():
    assert not _comparisons('call.op == Op.get("relax.call_tir")')
