"""Hostile surroundings: streams, limits, folders that are not there, signals; and odd options."""

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.hostile.bundles import whole
from tests.hostile.case import ENDED, Case, Make
from tests.hostile.models import pipe

_CHECK = ("check", "model.onnx")
_COMPILE = ("compile", "model.onnx", "--no-cache", "-o", "out")
_NO_UTF_8 = os.fsdecode(b"t\xff")
_WHOLE = ("compile", "model.onnx", "-o", "out")


def cases() -> Iterator[Case]:
    yield from _streams()
    yield from _folders()
    yield from _limits()
    yield from _signals()
    yield from _options()
    yield from _tools()


def _streams() -> Iterator[Case]:
    commands = {
        "check": _CHECK,
        "check --json": (*_CHECK, "--json"),
        "inspect": ("inspect", "b"),
        "an error": ("inspect", "nothing\u00e9\u4e2d\U0001f600"),
        "an error as JSON": ("inspect", "nothing\u00e9\u4e2d\U0001f600", "--json"),
        "help": ("--help",),
    }
    for name, command in commands.items():
        made = {"make": whole, "command": command, "family": "streams"}
        for encoding in ("latin-1", "ascii", "utf-16"):
            yield Case(
                **made,
                name=f"{encoding}, {name}",
                environment={"PYTHONIOENCODING": encoding},
                codes=ENDED,
            )
        for number, stream in enumerate(("input", "output", "errors")):
            yield Case(**made, name=f"{stream} closed, {name}", closed=(number,), codes=ENDED)
        yield Case(**made, name=f"all closed, {name}", closed=(0, 1, 2), codes=ENDED)
        full = ENDED if "error" in name else frozenset({27})
        yield Case(**made, name=f"output full, {name}", opened={1: "/dev/full"}, codes=full)
        yield Case(**made, name=f"errors full, {name}", opened={2: "/dev/full"}, codes=ENDED)
        yield Case(
            **made, name=f"both full, {name}", opened={1: "/dev/full", 2: "/dev/full"}, codes=ENDED
        )
        for columns in ("0", "1", "-5", "99999999", "x"):
            yield Case(
                **made,
                name=f"COLUMNS={columns}, {name}",
                environment={"COLUMNS": columns},
                codes=ENDED,
            )


def _folders() -> Iterator[Case]:
    case = partial(Case, "folders of the user")
    places = {
        "missing": "{work}/nowhere",
        "a file": "{work}/model.onnx",
        "a device": "/dev/null",
        "below a file": "{work}/model.onnx/x",
        "relative": "cache",
        "empty": "",
        "unknown user": "~nobody-of-that-name/x",
        "long": "/" + "n" * 4000,
        "in /proc": "/proc/x",
        "a newline": "{work}/a\nb",
    }
    for name, place in places.items():
        for variable in ("ADRENOC_CACHE_DIR", "TMPDIR", "HOME", "XDG_CACHE_HOME"):
            yield case(
                f"{variable} is {name}",
                command=_WHOLE if variable == "ADRENOC_CACHE_DIR" else _COMPILE,
                environment={
                    **(
                        {"ADRENOC_CACHE_DIR": None}
                        if variable in ("HOME", "XDG_CACHE_HOME")
                        else {}
                    ),
                    variable: place,
                },
                codes=ENDED,
                makes=("out", "nowhere", "cache", "a\nb"),
            )
    yield case(
        "TMPDIR is not UTF-8",
        lambda f: (f / _NO_UTF_8).mkdir(),
        (*_WHOLE, "--no-cache"),
        environment={"TMPDIR": f"{{work}}/{_NO_UTF_8}"},
        codes=frozenset({17}),
    )
    yield case("a working folder that is gone", command=_CHECK, in_removed_folder=True)
    yield case(
        "a cache that is a pipe",
        lambda f: pipe(f, "c"),
        _WHOLE,
        environment={"ADRENOC_CACHE_DIR": "{work}/c"},
        codes=frozenset({0}),
        makes=("out",),
    )
    if os.geteuid() == 0:
        yield case(
            "a cache of another user",
            lambda f: ((f / "c").mkdir(), os.chown(f / "c", 4711, 4711)),
            _WHOLE,
            environment={"ADRENOC_CACHE_DIR": "c"},
            codes=frozenset({0}),
            makes=("out",),
            said="belongs to another user",
        )
    for umask in (0, 0o777):
        yield case(f"umask {umask:03o}", command=_COMPILE, umask=umask, codes=ENDED, makes=("out",))


def _limits() -> Iterator[Case]:
    for name, values in {
        "RLIMIT_FSIZE": (0, 1, 4096, 1 << 18, 1 << 20),
        "RLIMIT_NOFILE": (3, 4, 8, 16),
        "RLIMIT_AS": (1 << 30, 3 << 29, 1 << 31, 1 << 32),
        "RLIMIT_STACK": (1 << 20,),
    }.items():
        for value in values:
            for command in (_WHOLE, (*_CHECK, "--html", "out")):
                yield Case(
                    "limits",
                    f"{name} {value}, {command[0]}",
                    command=command,
                    limits={name: value},
                    codes=ENDED,
                    makes=("out",),
                )


def _signals() -> Iterator[Case]:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        for step in range(5):
            yield Case(
                "signals",
                f"{number.name} after {step * 60} ms",
                command=(*_WHOLE, "--no-cache"),
                signal=int(number),
                after_s=step * 0.06,
                codes=frozenset({0, 128 + int(number), -int(number)}),
                makes=("out",),
            )


def _options() -> Iterator[Case]:
    case = partial(Case, "options")
    hosts = ("a" * 300 + ":1", "a" * 64 + ".b:1", "..:1", "x:0", "x:99999", "x:\u0664", ":1", "x")
    for host in (*hosts, "\x1b[2J:1", "x" * 100_000 + ":1", "a\u200b:1", "[::1:9"):
        yield case(f"--on {host[:16]!r} of {len(host)}", whole, ("run", "b", "--on", host))
    for words in (
        ("compile", "model.onnx", "--device", "\x1b[2J"),
        ("compile", "model.onnx", "--device", "../../etc/passwd"),
        ("compile", "model.onnx", "--device", "d" * 100_000),
        ("compile", "model.onnx", "--preset", "../fp16"),
        ("compile", "model.onnx", "--tuning-log", "../" * 500),
        ("compile", "model.onnx", "--set", f"max_memory_mib={'9' * 4300}"),
        ("check", "model.onnx", "--limit", "time-ms=nan"),
        ("check", "model.onnx", "--limit", "time-ms=1e999"),
        ("run", "b", "--input", "x=/dev/zero"),
        ("run", "b", "--input", "image=/dev/zero"),
        ("run", "b", "--input", "image=p.npy"),
        ("run", "b", "--input", "image=p.png"),
        ("run", "b", "--input", "image=p.raw"),
        ("run", "b", "--input", "\x1b[2J=x"),
        ("run", "b", "--image", "0/0"),
        ("run", "b", "--seed", "-1"),
        ("run", "b", "--on", ""),
        ("run", "b", "--on", "tracker:127.0.0.1:1"),
        ("run", "b", "--sustain", "inf"),
        ("run", "b", "--sustain", "1/inf"),
        ("run", "b", "--tolerance", "nan"),
        ("run", "b", "--shape", "image:1,3,9,9"),
        ("run", "b", "--shape", "nothing:1"),
        ("device", "list", "--on", "tracker:127.0.0.1:1"),
        ("package", "b", "--as", "aar", "-o", "/dev/null"),
        ("package", "b", "--as", "aar", "-o", "model.onnx"),
        ("package", "b", "--as", "aar", "-o", "no/x.aar"),
        ("package", "b", "b", "--as", "aar", "-o", "p"),
        ("inspect", "\x1b]0;x\x07"),
        ("inspect", "x" * 100_000),
        ("run", "x" * 100_000),
        ("\x1b[2J",),
        ("inspect", "--\x1b[2J"),
        ("targets", "\x9b31m"),
        ("doctor", "--app", "p.npy"),
        ("doctor", "--app", "/dev/zero"),
        ("package", "b", "--as", "cmake", "-o", "b"),
        ("tune", "log", "diff", "p.npy", "/dev/zero"),
        ("tune", "log", "merge", "/dev/zero", "-o", "x.json"),
        ("runtime", "build", "--abi", "\x1b[2J"),
        ("device", "list", "--on", "tracker:" + "a" * 300 + ":1"),
        ("runtime", "serve", "--host", "a" * 300),
        ("runtime", "serve", "--host", "\x1b[2J", "--port", "0"),
    ):
        name = " ".join(words)[:48].encode("unicode_escape").decode()
        yield case(name, _with_pipes, words, codes=ENDED | {2}, makes=("model.adrenoc",))


def _linker(script: str) -> Make:
    """A linker of the user's that does what the script does."""

    def make(folder: Path) -> None:
        (folder / "bin").mkdir()
        (folder / "bin" / "ld.lld").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "bin" / "ld.lld").chmod(0o755)

    return make


def _tools() -> Iterator[Case]:
    told = '[ "$1" = --version ] && echo LLD 22.1.8 && exit'
    for name, script in {
        "says nothing": "exit 0",
        "fails": "exit 1",
        "links nothing": f"{told}\nexit 0",
        "says much": f"{told}\nhead -c 3000000 /dev/zero; exit 1",
        "kills itself": f"{told}\nkill -9 $$",
        "has escapes": "printf '\\033[2J'; exit 1",
    }.items():
        yield Case(
            "tools",
            f"a linker that {name}",
            _linker(script),
            (*_WHOLE, "--no-cache"),
            environment={"PATH": "{work}/bin:/usr/bin:/bin"},
        )


def _with_pipes(folder: Path) -> None:
    whole(folder)
    for suffix in ("npy", "png", "raw"):
        pipe(folder, f"p.{suffix}")
