"""Folders and files that may not be read or written, and firmware in hostile places."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.hostile.bundles import whole
from tests.hostile.case import ENDED, Case, Make
from tests.hostile.firmware import CORE, folder, plain
from tests.hostile.models import NAMES, SPECIAL, put, relu
from tests.hostile.outputs import PATHS, PLACES
from tests.mcu.networks import keywords

_COMMANDS: dict[str, tuple[str, ...]] = {
    "compile": ("compile", "model.onnx"),
    "compile to a tar": ("compile", "model.onnx", "-o", "model.adrenoc.tar"),
    "check": ("check", "model.onnx", "--html", "r.html"),
    "tune": ("tune", "run", "model.onnx", "--offline", "--trials", "4"),
    "inspect": ("inspect", "b"),
    "package": ("package", "b", "--as", "aar", "-o", "p"),
    "tune-log": ("tune", "log", "merge", "l.json", "-o", "m.json"),
    "firmware": ("firmware", "compile", "k.tflite", "--device", CORE),
}


def cases() -> Iterator[Case]:
    yield from _rights()
    yield from _below()
    yield from _firmware()
    yield from _names()


def _whole(work: Path) -> None:
    whole(work)
    (work / "l.json").write_bytes(b"")
    (work / "k.tflite").write_bytes(keywords(width=4, blocks=1, height=11))


def _with(change: Callable[[Path], object]) -> Make:
    def make(work: Path) -> None:
        _whole(work)
        change(work)

    return make


def _rights() -> Iterator[Case]:
    case = partial(Case, "rights", without_rights=True)
    for name, command in _COMMANDS.items():
        # What writes nothing here ends well.
        writes = name not in ("inspect", "package")
        title, codes = f"a working folder to read alone, {name}", Case.codes if writes else ENDED
        yield case(title, _with(lambda work: work.chmod(0o555)), command, codes=codes)
        make = _with(lambda work: work.chmod(0o111))
        yield case(f"a working folder that may not be listed, {name}", make, command, codes=ENDED)
    for name, change in {
        "a model": lambda work: (work / "model.onnx").chmod(0),
        "a folder of a model": lambda work: (
            (work / "f").mkdir(),
            (work / "model.onnx").rename(work / "f" / "m.onnx"),
            (work / "f").chmod(0),
            (work / "model.onnx").symlink_to("f/m.onnx"),
        ),
    }.items():
        for command in (("check", "model.onnx"), ("compile", "model.onnx"), _COMMANDS["tune"]):
            made, ends = _with(change), frozenset({11})
            yield case(f"{name} that may not be read, {command[0]}", made, command, codes=ends)
    for name, path in {
        "manifest": "manifest.json",
        "library": "model.so",
        "kernel": "kernels/conv2d_kernel.cl",
        "folder of kernels": "kernels",
        "bundle": ".",
    }.items():
        for command in (
            ("inspect", "b"),
            ("package", "b", "--as", "aar", "-o", "p"),
            ("device", "warm", "b"),
        ):
            given = _with(lambda work, path=path: (work / "b" / path).chmod(0))
            yield case(f"a {name} that may not be read, {command[0]}", given, command)
    for mode in (0o000, 0o111, 0o444, 0o500, 0o555):
        for variable in ("ADRENOC_CACHE_DIR", "TMPDIR", "HOME"):

            def closed(work: Path, mode: int = mode) -> None:
                (work / "c").mkdir()
                (work / "c").chmod(mode)

            yield case(
                f"{variable} of mode {mode:03o}",
                _with(closed),
                ("compile", "model.onnx", "-o", "out"),
                environment={
                    **({"ADRENOC_CACHE_DIR": None} if variable == "HOME" else {}),
                    variable: "{work}/c",
                },
                codes=frozenset({0} if variable != "TMPDIR" else {0, 18, 27}),
                makes=("out",),
            )
    for name in ("out", "out.html", "out.json"):

        def locked(work: Path, name: str = name) -> None:
            _whole(work)
            if name == "out":
                (work / "b").rename(work / "out")
                (work / "out").chmod(0o555)
            else:
                (work / name).write_text("mine")
                (work / name).chmod(0o444)

        option = "--html" if name == "out.html" else "-o"
        verb = {"out": ("compile",), "out.html": ("check",), "out.json": ("tune", "run")}[name]
        words = (*verb, "model.onnx", *(["--offline"] if "tune" in verb else []), option, name)
        makes = ("out", "out.html")
        yield case(f"an output to read alone, {verb}", locked, words, codes=ENDED, makes=makes)


def _below() -> Iterator[Case]:
    """A folder that may not be entered, for each thing that is named."""

    def closed(work: Path) -> None:
        _whole(work)
        (work / "c").mkdir()
        (work / "c" / "x").write_bytes(relu())
        (work / "c").chmod(0)

    for words in (
        ("check", "c/x"),
        ("compile", "c/x"),
        ("check-accuracy", "c/x"),
        ("tune", "run", "c/x", "--offline"),
        ("inspect", "c/x"),
        ("run", "c/x"),
        ("device", "warm", "c/x"),
        ("package", "c/x", "--as", "aar", "-o", "p"),
        ("package", "b", "--as", "cmake", "-o", "p", "--runtime", "c/x"),
        ("package", "b", "--as", "cmake", "-o", "c/x"),
        ("package", "b", "--as", "aar", "-o", "c/x.aar"),
        ("package", "b", "--as", "aar", "-o", "p", "--sample", "c/x"),
        ("compile", "model.onnx", "-o", "c/x"),
        ("compile", "model.onnx", "-o", "c/x.tar"),
        ("compile", "model.onnx", "--precision-policy", "c/x"),
        ("compile", "model.onnx", "--tuning-log", "c/x"),
        ("compile", "model.onnx", "--device", "c/x"),
        ("compile", "model.onnx", "--device", "c/x.toml"),
        ("compile", "model.onnx", "--set", "ndk=c/x", "--no-cache"),
        ("compile", "model.onnx", "--set", "ndk=c", "--no-cache"),
        ("compile", "model.onnx", "--device", "host", "--accuracy", "1", "--inputs", "c/x"),
        ("check", "model.onnx", "--html", "c/x"),
        ("tune", "run", "model.onnx", "--offline", "-o", "c/x"),
        ("tune", "run", "model.onnx", "--offline", "--from", "c/x"),
        ("tune", "log", "show", "c/x"),
        ("tune", "log", "diff", "l.json", "c/x"),
        ("tune", "log", "merge", "l.json", "-o", "c/x"),
        ("tune", "log", "prune", "l.json", "-o", "c/x"),
        ("run", "b", "--input", "image=c/x.npy"),
        ("run", "b", "--input", "image=c/x.png"),
        ("run", "b", "--input", "image=c/x"),
        ("run", "b", "--check", "c/x"),
        ("compare", "c/x", "c/x"),
        ("run", "b", "--save", "c/x"),
        ("doctor", "--app", "c/x"),
        ("runtime", "build", "-o", "c/x"),
        ("runtime", "install-unit", "--runtime", "c/x", "-o", "p"),
    ):
        yield Case(
            "closed folders",
            " ".join(words),
            closed,
            words,
            codes=ENDED,
            makes=("model.adrenoc", "model.tune.json", "p"),
            without_rights=True,
        )


def _firmware() -> Iterator[Case]:
    case = partial(Case, "firmware in hostile places")

    def with_model(place: Make) -> Make:
        def make(work: Path) -> None:
            (work / "k.tflite").write_bytes(keywords(width=4, blocks=1, height=11))
            place(work)

        return make

    command = ("firmware", "compile", "k.tflite", "--device", CORE, "-o")
    for kind, place in PLACES.items():
        yield case(kind, with_model(place), (*command, "out"))
    for kind, path in PATHS.items():
        yield case(
            f"named: {kind}",
            with_model(lambda work: (work / "x").mkdir()),
            (*command, "{work}/.." if path == "~" else path),
            codes=Case.codes | {2},
        )
    for kind in ("a pipe", "endless zeros", "memory", "a folder", "a circle of links", "text"):
        for verb in ("check", "compile"):
            yield case(
                f"a model: {kind}, {verb}",
                lambda work, kind=kind: SPECIAL[kind](work, "m.tflite"),
                ("firmware", verb, "m.tflite", "--device", CORE),
            )
    for words in (
        ("--limit", "flash-kib=" + "9" * 4300),
        ("--limit", "ram-kib=1"),
        ("--limit", "flash-kib=1"),
        ("--tuning-log", "k.tflite"),
        ("--limit", "spare-flash-kib=1"),
        ("--object",),
        ("--explain",),
        ("--json",),
    ):
        title, made = " ".join(words)[:24], with_model(lambda work: None)
        yield case(title, made, (*command, "out", *words), codes=ENDED | {2}, makes=("out", "d"))
    tools = {
        "fails": "exit 1",
        "says nothing": "exit 0",
        "kills itself": "kill -9 $$",
        "has escapes": "printf '\\033[2J' >&2; exit 1",
        "says much": "head -c 3000000 /dev/zero >&2; exit 1",
    }
    for name, script in tools.items():
        for tool in ("arm-none-eabi-gcc", "qemu-system-arm"):

            def linked(root: Path, tool: str = tool, script: str = script) -> None:
                (root.parent / "bin").mkdir()
                (root.parent / "bin" / tool).write_text(f"#!/bin/sh\n{script}\n")
                (root.parent / "bin" / tool).chmod(0o755)

            given, environment = folder(linked), {"PATH": "{work}/bin:/usr/bin:/bin"}
            yield case(f"{tool} {name}", given, ("firmware", "run", "fw"), environment=environment)
    for name, words in {
        "input of text": ("--input", "model.onnx"),
        "input that is a device": ("--input", "/dev/zero"),
        "input that is not there": ("--input", "x=nowhere"),
        "save over its own code": ("--save", "fw/model.c"),
        "save to a device": ("--save", "/dev/null"),
        "save in no folder": ("--save", "no/o.npz"),
        "check of another model": ("--check", "model.onnx"),
        "check of itself": ("--check", "fw"),
        "an option for GPUs": ("--on", "127.0.0.1:1"),
        "a device of OpenCL": ("--on", f"opencl:{'9' * 4300}"),
    }.items():
        yield case(f"run, {name}", plain, ("firmware", "run", "fw", *words), codes=ENDED | {2})


def _names() -> Iterator[Case]:
    """Names of models that become names of folders, and of C."""
    case = partial(Case, "names of firmware", codes=ENDED | {2})
    for kind, name in {**NAMES, "word of C": "int", "digits": "9", "dots": "..."}.items():
        stem = name.replace("/", "_").replace("\0", "")[:100]
        made = put(stem + ".tflite", keywords(width=4, blocks=1, height=11))
        words = ("firmware", "compile", "--device", CORE, "-o", "out", "--", stem + ".tflite")
        yield case(kind, made, words, makes=("out",))
        yield case(
            f"{kind}, as a folder",
            put("k.tflite", keywords(width=4, blocks=1, height=11)),
            ("firmware", "compile", "k.tflite", "--device", CORE, "-o", f"./{stem}"),
            makes=(stem.encode("unicode_escape").decode(), stem),
        )
    for name in ("model.onnx/", "./model.onnx", "model.onnx/.", "-", "~", "file:model.onnx", "@x"):
        for command in ("check", "compile", "inspect", "run", "package"):
            more = ("--as", "aar", "-o", "p") if command == "package" else ()
            make = put("model.onnx", relu())
            yield case(f"{command} {name}", make, (command, name, *more), makes=("model.adrenoc",))
