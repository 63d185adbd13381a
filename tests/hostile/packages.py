"""Hostile folders that options name: NDKs, runtimes, inputs; places for what packages and logs."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from adrenoc.base.files.outputs import LIST_FILE
from tests.hostile.bundles import whole
from tests.hostile.case import ENDED, Case, Make
from tests.hostile.models import NAMES, SPECIAL, link
from tests.hostile.outputs import PLACES

_PREBUILT = "toolchains/llvm/prebuilt/linux-x86_64/bin"
_RUNTIME = (
    *("libadrenoc_runtime.so", "adrenoc.h", "adrenoc.hpp", "adrenoc_process.h"),
    *("LICENSE", "NOTICE"),
)


def cases() -> Iterator[Case]:
    yield from _kits()
    yield from _runtimes()
    yield from _places()
    yield from _sets()
    yield from _targets()


def _kit(content: bytes, change: Callable[[Path], object] = lambda kit: None) -> Make:
    """A folder that looks like an NDK."""

    def make(folder: Path) -> None:
        kit = folder / "ndk"
        (kit / _PREBUILT).mkdir(parents=True)
        (kit / "meta").mkdir()
        (kit / "source.properties").write_bytes(content)
        change(kit)

    return make


def _replaced(name: str, by: Callable[[Path, str], object]) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        by((root / name).parent, (root / name).name)

    return change


def _kits() -> Iterator[Case]:
    case = partial(Case, "folders of tools")
    whole = b"Pkg.Desc = Android NDK\nPkg.Revision = 27.0.12077973\n"
    makes: dict[str, Make] = {
        "a version of 5,000 digits": _kit(b"Pkg.Revision = " + b"9" * 5000 + b".0.1\n"),
        "a version of other digits": _kit("Pkg.Revision = \u0662\u0667.0.1\n".encode()),
        "a version with escapes": _kit(b"Pkg.Revision = 27.0.1\x1b[2J\n"),
        "a version below zero": _kit(b"Pkg.Revision = -27.0.1\n"),
        "properties that are not UTF-8": _kit(b"Pkg.Revision = 27.0.1\n\xff\xfe"),
        "properties of zeros": _kit(bytes(1 << 20)),
        "no properties": _kit(b"", lambda kit: (kit / "source.properties").unlink()),
        "a linker that is a folder": _kit(whole, lambda kit: (kit / _PREBUILT / "ld.lld").mkdir()),
        "a linker that is a circle": _kit(whole, lambda k: link("SELF")(k / _PREBUILT, "ld.lld")),
        "a linker that is text": _kit(whole, _program("ld.lld", "hello")),
        "a linker that fails": _kit(whole, _program("ld.lld", "#!/bin/sh\nexit 1\n")),
        "a linker that is not there": _kit(whole),
        "tools of another machine": _kit(
            whole, lambda kit: (kit / _PREBUILT).parent.rename(kit / "toolchains/llvm/other")
        ),
    }
    for kind in ("a pipe", "endless zeros", "a folder", "a circle of links", "a socket"):
        makes[f"properties: {kind}"] = _kit(whole, _replaced("source.properties", SPECIAL[kind]))
    for name, make in makes.items():
        command = ("compile", "model.onnx", "--set", "ndk=ndk", "--no-cache", "-o", "out")
        yield case(f"an NDK with {name}", make, command, makes=("out",), codes=ENDED)
    platforms = (
        *(b"[" * 100_000, b'{"min": ' + b"9" * 5000 + b"}", b"null", b'{"min": 1e999, "max": []}'),
        *(b'{"min": -5, "max": 3}', b"\xff\xfe"),
    )
    for number, text in enumerate(platforms):
        yield case(
            f"platforms of an NDK, {number}",
            _kit(whole, lambda kit, t=text: (kit / "meta/platforms.json").write_bytes(t)),
            ("runtime", "build", "--abi", "arm64-v8a", "-o", "out"),
            environment={"ANDROID_NDK_HOME": "ndk"},
        )
    for kind in ("a pipe", "endless zeros", "a folder", "memory"):
        yield case(
            f"platforms of an NDK: {kind}",
            _kit(whole, _replaced("meta/platforms.json", SPECIAL[kind])),
            ("runtime", "build", "--abi", "arm64-v8a", "-o", "out"),
            environment={"ANDROID_NDK_HOME": "ndk"},
        )
    for name, place in (
        ("a root", "/"),
        ("a file", "model.onnx"),
        ("nothing", ""),
        ("long", "n" * 5000),
    ):
        words = ("compile", "model.onnx", "--set", f"ndk={place}", "-o", "out")
        yield case(f"an NDK that is {name}", command=words, codes=ENDED | {2}, makes=("out",))
        for variable in ("ANDROID_NDK_HOME", "ANDROID_HOME"):
            yield case(
                f"{variable} is {name}",
                command=("compile", "model.onnx", "--no-cache", "-o", "out"),
                environment={variable: place},
                codes=ENDED,
                makes=("out",),
            )


def _program(name: str, text: str) -> Callable[[Path], None]:
    def change(kit: Path) -> None:
        (kit / _PREBUILT / name).write_text(text)
        (kit / _PREBUILT / name).chmod(0o755)

    return change


def _runtime(change: Callable[[Path], object]) -> Make:
    """A bundle, and a folder that looks like a runtime."""

    def make(folder: Path) -> None:
        whole(folder)
        (folder / "r").mkdir()
        for name in _RUNTIME:
            (folder / "r" / name).write_bytes(b"\x7fELF" + bytes(200))
        change(folder / "r")

    return make


def _runtimes() -> Iterator[Case]:
    case = partial(Case, "runtimes of others")
    makes: dict[str, Make] = {
        "no library": _runtime(lambda r: None),
        "nothing": _runtime(lambda r: [path.unlink() for path in r.iterdir()]),
        "a deep list": _runtime(lambda r: (r / LIST_FILE).write_text("[" * 100_000)),
    }
    for kind in ("a pipe", "endless zeros", "a folder", "a circle of links", "empty", "memory"):
        for name in ("libadrenoc_runtime.so", "NOTICE", "adrenoc.h"):
            makes[f"{name}: {kind}"] = _runtime(_replaced(name, SPECIAL[kind]))
    for name, make in makes.items():
        for form in ("aar", "cmake"):
            title = f"{name}, {form}"
            yield case(title, make, ("package", "b", "--as", form, "--runtime", "r", "-o", "out"))
    for place in ("/", "model.onnx", "nowhere", "b", "/proc/self/fd", "n" * 5000):
        command = ("package", "b", "--as", "aar", "--runtime", place, "-o", "out.aar")
        yield case(f"--runtime {place[:20]}", _runtime(lambda r: None), command, codes=ENDED | {2})


def _places() -> Iterator[Case]:
    """Every other command that writes, and every place."""
    commands = {
        "package --as aar": ("package", "b", "--as", "aar", "-o"),
        "package --as cmake": ("package", "b", "--as", "cmake", "-o"),
        "package --sample": ("package", "b", "--as", "aar", "-o", "new", "--sample"),
        "run --save": ("run", "b", "--on", "127.0.0.1:1", "--save"),
        "tune-log merge": ("tune", "log", "merge", "l.json", "-o"),
        "runtime build": ("runtime", "build", "-o"),
        "runtime install-unit": ("runtime", "install-unit", "--runtime", "new", "-o"),
    }
    for kind, place in PLACES.items():
        for name, command in commands.items():

            def make(folder: Path, place: Make = place) -> None:
                whole(folder)
                (folder / "l.json").write_bytes(b"")
                place(folder)

            if kind.startswith("the model") and name.startswith("tune-log"):
                continue  # to which it is a file like others
            yield Case("more places to write to", f"{kind}, {name}", make, (*command, "out"))


def _sets() -> Iterator[Case]:
    """Folders of inputs that accuracy is measured on."""

    def held(**files: bytes | Callable[[Path, str], object]) -> Make:
        def make(folder: Path) -> None:
            (folder / "i").mkdir()
            for name, content in files.items():
                place = name.replace("_", ".")
                if callable(content):
                    content(folder / "i", place)
                else:
                    (folder / "i" / place).write_bytes(content)

        return make

    def numbers(folder: Path, name: str, value: float = 0.0) -> None:
        np.save(folder / name, np.full((1, 4, 4, 4), value, "float32"))

    makes: dict[str, Make] = {
        "nothing in it": held(),
        "a pipe": held(a_npy=SPECIAL["a pipe"]),
        "zeros without end": held(a_npy=SPECIAL["endless zeros"]),
        "a folder": held(a_npz=SPECIAL["a folder"]),
        "a circle": held(a_npz=SPECIAL["a circle of links"]),
        "text": held(a_npy=b"hello", a_npz=b"PK\3\4"),
        "other files": held(a_txt=b"hello"),
        "one array and one damaged": held(a_npy=numbers, b_npy=b"\x93NUMPY"),
        "no folder": lambda folder: None,
        "a file": lambda folder: (folder / "i").write_bytes(b""),
        "a circle of folders": lambda folder: (folder / "i").symlink_to("i"),
    }
    for name, make in makes.items():
        for command in (
            ("compile", "model.onnx", "--device", "host", "--accuracy", "0.1", "-o", "out"),
            ("check-accuracy", "model.onnx", "--preset", "fp16"),
        ):
            title, words = f"{name}, {command[0]}", (*command, "--inputs", "i")
            yield Case("sets of inputs", title, make, words, codes=frozenset({2, 11, 24}))


_BASE = 'base = "adreno:750"\n'


def _limit(value: str, key: str = "max_work_group_size") -> bytes:
    return f'{_BASE}[limits]\n{key} = {{ value = {value}, source = "me" }}\n'.encode()


_TEXTS: dict[str, bytes] = {
    "nothing": b"",
    "JSON": b'{"base": "adreno:750"}',
    "not UTF-8": b'title = "\xff\xfe"',
    "UTF-16": _BASE.encode("utf-16"),
    "zeros": bytes(4096),
    "deep lists": b"a = " + b"[" * 100_000,
    "deep lists, closed": b"a = " + b"[" * 400 + b"]" * 400,
    "deep tables": b"[" + b"a." * 20_000 + b"a]\n",
    "deep keys": b"a." * 3000 + b"a = 1\n",
    "deep inline tables": b"a = " + b"{ b = " * 400 + b"1" + b" }" * 400,
    "a long number": b"a = " + b"9" * 5000,
    "a long number of a limit": _limit("9" * 5000),
    "a limit of 2^63": _limit(str(2**63)),
    "a limit of 0": _limit("0"),
    "a limit below zero": _limit("-1"),
    "a limit of 1": _limit("1"),
    "a limit of NaN": _limit("nan"),
    "a limit of infinity": _limit("inf"),
    "a limit that is a text": _limit('"1024"'),
    "a limit that is a date": _limit("1979-05-27"),
    "a limit that is a table": _limit("{}"),
    "an unknown limit of escapes": _limit("1", '"\\u001b[2J"'),
    "a rate of NaN": f"{_BASE}[performance]\nclock_mhz = {{ value = nan, source = 'x' }}".encode(),
    "waves of a million": (
        f"{_BASE}[performance]\nwave_sizes = {{ value = {list(range(1, 999))}, source = 'x' }}"
    ).encode(),
    "half a character": b'title = "\\ud800"',
    "escapes": f'{_BASE}title = "\\u001b[2J{chr(0x9B)}"\n'.encode(),
    "lines in a title": b'base = "adreno:750"\ntitle = "a\\nerror: b"\n',
    "a key twice": (_BASE * 2).encode(),
    "the base of itself": b'base = "t.toml"\n',
    "a base elsewhere": b'base = "../../../etc/passwd"\n',
    "a base that is none": b'base = "nothing"\n',
    "a base of lists": b"base = [[[]]]\n",
    "a base of the host": b'base = "host"\n',
    "a cost elsewhere": f'{_BASE}[cost]\nbase = "../../../../etc/passwd"\n'.encode(),
    "a cost of numbers": f"{_BASE}[cost]\nbase = 7\n".encode(),
    "100,000 extensions": (
        _BASE
        + "[extensions]\n"
        + "".join(f"cl_x{i} = {{ value = true, source = 'x' }}\n" for i in range(100_000))
    ).encode(),
    "extensions of escapes": (
        f"{_BASE}[extensions]\n\"\\u001b[2J\" = {{ value = true, source = 'x' }}\n"
    ).encode(),
}


def _targets() -> Iterator[Case]:
    case = partial(Case, "target files")
    check, targets = ("check", "model.onnx", "--device", "t.toml"), ("targets", "t.toml")
    for name, content in _TEXTS.items():
        for command in (check, targets):
            yield case(
                f"{name}, {command[0]}",
                lambda folder, c=content: (folder / "t.toml").write_bytes(c),
                command,
                codes=ENDED,
            )
    for kind, make in SPECIAL.items():
        yield case(kind, lambda folder, make=make: make(folder, "t.toml"), check)
    for kind, name in NAMES.items():
        file = name.replace("/", "_").replace("\0", "")[:200] + ".toml"

        def called(folder: Path, file: str = file) -> None:
            (folder / file).write_text(_BASE + 'title = "x"\n')

        words = ("compile", "model.onnx", "--no-cache", "--device", file, "-o", "out")
        yield case(f"called: {kind}", called, words, codes=ENDED, makes=("out",))
