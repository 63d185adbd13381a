"""Hostile places to write to, for every command that writes, and hostile texts to read."""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.hostile.case import Case, Make
from tests.hostile.models import SPECIAL, pipe, relu
from tests.unit.fake_compiled import make_bundle_folder

_MARKERS = ("manifest.json", "adrenoc_run", "adrenoc-files.json")


def _project(marker: str, content: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / "out" / ".git").mkdir(parents=True)
        (folder / "out" / ".git" / "HEAD").write_text("ref")
        (folder / "out" / marker).write_text(content)

    return make


def _bundle_and(extra: Callable[[Path], object]) -> Make:
    def make(folder: Path) -> None:
        make_bundle_folder(folder / "out")
        extra(folder / "out")

    return make


def _lists_all(folder: Path) -> None:
    """A manifest that claims a repository."""
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("ref")
    plain = json.loads((folder / "manifest.json").read_text())
    plain["files"].append({"path": ".git/HEAD", "bytes": 3, "sha256": "00" * 32})
    (folder / "manifest.json").write_text(json.dumps(plain))


PLACES: dict[str, Make] = {
    **{f"a project with {m}": _project(m, "{}") for m in _MARKERS},
    "a project, manifest as list": _project("manifest.json", "[]"),
    "a project, manifest nested deeply": _project("manifest.json", "[" * 100_000),
    "a folder of photographs": lambda f: ((f / "out").mkdir(), (f / "out" / "a.jpg").touch()),
    "a bundle with notes": _bundle_and(lambda f: (f / "notes.txt").touch()),
    "a bundle with an empty folder": _bundle_and(lambda f: (f / "mine").mkdir()),
    "a bundle with a link in it": _bundle_and(lambda f: (f / "l").symlink_to("/etc")),
    "a bundle with a pipe in it": _bundle_and(lambda f: pipe(f, "p")),
    "a bundle that lists a repository": _bundle_and(_lists_all),
    "a pipe": lambda f: pipe(f, "out"),
    "a device": lambda f: (f / "out").symlink_to("/dev/null"),
    "a full device": lambda f: (f / "out").symlink_to("/dev/full"),
    "a circle of links": lambda f: (f / "out").symlink_to("out"),
    "a link to nothing": lambda f: (f / "out").symlink_to("nowhere"),
    "a socket": lambda f: SPECIAL["a socket"](f, "out"),
    "the model": lambda f: (f / "out").symlink_to("model.onnx"),
    "the model by another name": lambda f: os.link(f / "model.onnx", f / "out"),
}
PATHS = {
    "the root": "/",
    "the working folder": ".",
    "its parent": "..",
    "the home folder": "~",
    "below a file": "model.onnx/out",
    "in no folder": "no/such/out",
    "a long name": "n" * 256,
    "a long path": "n/" * 2100 + "n",
    "an empty name": "",
    "in /proc": "/proc/out",
    "in /sys": "/sys/out",
    "a device": "/dev/null",
    "itself": "model.onnx",
    "itself, written otherwise": "./x/../model.onnx",
}
COMMANDS: dict[str, tuple[str, ...]] = {
    "compile": ("compile", "model.onnx", "-o"),
    "check --html": ("check", "model.onnx", "--html"),
    "tune": ("tune", "run", "model.onnx", "--offline", "-o"),
    "check-accuracy": (
        *("check-accuracy", "model.onnx", "--device", "host", "--preset", "fp16", "-o"),
    ),
}


def cases() -> Iterator[Case]:
    case = partial(Case, "places to write to")
    for kind, make in PLACES.items():
        for name, command in COMMANDS.items():
            if name == "check-accuracy" and not kind.startswith(("a pipe", "the model")):
                continue  # it computes for seconds before it writes
            yield case(f"{kind}, {name}", make, (*command, "out"))
    for kind, path in PATHS.items():
        for name, command in COMMANDS.items():
            if name == "check-accuracy":
                continue
            yield case(
                f"named: {kind}, {name}",
                lambda f: (f / "x").mkdir(),
                (*command, os.path.expanduser(path) if path != "~" else "{work}/.."),  # noqa: PTH111
                codes=Case.codes | {2},
            )
    yield from _dumps()
    yield from _texts()


def _dumps() -> Iterator[Case]:
    case = partial(Case, "folders for dumps")
    command = ("compile", "model.onnx")
    for kind, path in PATHS.items():
        if kind in (
            "the working folder",
            "its parent",
            "the home folder",
            "the root",
            "an empty name",
        ):
            continue
        yield case(
            f"named: {kind}",
            lambda f: (f / "x").mkdir(),
            command,
            environment={"ADRENOC_DUMP_DIR": path},
            codes=Case.codes | ({0} if kind == "in no folder" else set()),
            makes=("no", "model.adrenoc"),
        )
    yield case(
        "a dump over the model",
        lambda f: ((f / "d").mkdir(), os.link(f / "model.onnx", f / "d" / "00_import.txt")),
        command,
        environment={"ADRENOC_DUMP_DIR": "d"},
        said="is an input of this command",
    )
    for kind in ("a pipe", "a device", "a socket", "a circle of links", "a link to nothing"):
        yield case(kind, PLACES[kind], command, environment={"ADRENOC_DUMP_DIR": "out"})


_GOOD = '{"a": 1}'
TEXTS: dict[str, bytes] = {
    "nothing": b"",
    "a list": b"[]",
    "null": b"null",
    "a number": b"1",
    "a text": b'"x"',
    "an object": _GOOD.encode(),
    "deep lists": b"[" * 200_000,
    "deep lists, closed": b"[" * 5000 + b"]" * 5000,
    "deep objects": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "a long number": b'{"a": ' + b"9" * 5000 + b"}",
    "half a character": b'{"a": "\\ud800"}',
    "not UTF-8": b'{"a": "\xff\xfe"}',
    "UTF-16": _GOOD.encode("utf-16"),
    "zeros": bytes(4096),
    "infinity": b'{"a": Infinity}',
    "escapes": b'{"\x1b]0;x\x07": "\xc2\x9b31m"}',
    "a key of lines": b'{"a\\nerror: b": 1}',
    "cut off": b'{"a": ',
}


def _texts() -> Iterator[Case]:
    case = partial(Case, "texts to read")
    commands = {
        "policy": ("compile", "model.onnx", "--precision-policy", "t.json"),
        "tuning log": ("tune", "log", "show", "t.json"),
        "tuning log to compile with": ("compile", "model.onnx", "--tuning-log", "t.json"),
        "baseline": ("compare", "t.json", "t.json"),
        "log to prune": ("tune", "log", "prune", "t.json", "-o", "out"),
    }
    for name, command in commands.items():
        for kind, content in TEXTS.items():
            has_lines = name.startswith(("tuning", "log"))
            yield case(
                f"{kind}, {name}",
                _text(content + b"\n" * has_lines),
                command,
                codes=Case.codes | ({0} if has_lines and kind in ("nothing", "zeros") else set()),
                makes=("out", "model.adrenoc"),
            )
        for kind in ("a pipe", "endless zeros", "a folder", "a circle of links", "memory"):
            yield case(
                f"{kind}, {name}",
                lambda f, kind=kind: (SPECIAL[kind](f, "t.json"), make_bundle_folder(f / "b")),
                command,
            )
    yield case(
        "notes of the user as a log to go on with",
        lambda f: (f / "out.json").write_text("my notes, without an end of line"),
        ("tune", "run", "model.onnx", "--offline", "-o", "out.json"),
    )


def _text(content: bytes) -> Make:
    def make(folder: Path) -> None:
        make_bundle_folder(folder / "b")
        (folder / "t.json").write_bytes(content)
        (folder / "model.onnx").write_bytes(relu())

    return make
