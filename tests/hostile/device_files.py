"""Hostile target files of the user's own, `--device FILE.toml`."""

from collections.abc import Iterator
from pathlib import Path

from tests.hostile.case import ENDED, Case
from tests.hostile.models import NAMES, SPECIAL

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


def cases() -> Iterator[Case]:
    check, targets = ("check", "model.onnx", "--device", "t.toml"), ("targets", "t.toml")
    for name, content in _TEXTS.items():
        for command in (check, targets):
            yield Case(
                family="target files",
                name=f"{name}, {command[0]}",
                make=lambda folder, c=content: (folder / "t.toml").write_bytes(c),
                command=command,
                codes=ENDED,
            )
    for kind, make in SPECIAL.items():
        yield Case(
            family="target files",
            name=kind,
            make=lambda folder, make=make: make(folder, "t.toml"),
            command=check,
        )
    for kind, name in NAMES.items():
        file = name.replace("/", "_").replace("\0", "")[:200] + ".toml"

        def called(folder: Path, file: str = file) -> None:
            (folder / file).write_text(_BASE + 'title = "x"\n')

        yield Case(
            family="target files",
            name=f"called: {kind}",
            make=called,
            command=("compile", "model.onnx", "--no-cache", "--device", file, "-o", "out"),
            codes=ENDED,
            makes=("out",),
        )
