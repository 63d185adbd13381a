"""Hostile model files: special files, damage, nests, names, weights that are not there."""

import os
import random
import socket
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.hostile.case import ENDED, Case, Make
from tests.models import graph, network

NAMES = {
    "title": "\x1b]0;owned\x07",
    "clear": "\x1b[2J\x1b[H",
    "c1": "\x9b31mred",
    "bidi": "abc\u202egnp.exe",
    "isolate": "\u2066a\u2069",
    "tags": "a\U000e0041",
    "lines": "a\nerror: all is lost\n  try: rm -rf ~",
    "carriage": "a\rerror: b",
    "markup": "[bold red]x[/] [/nothing]",
    "format": "{0} %s {data} {{data}}",
    "long": "n" * 5000,
    "zero": "a\0b",
    "spaces": " \u00a0\u2003",
    "html": "</script><script>alert(1)</script>",
    "path": "../../../etc/passwd",
    "quote": "'\"`$(id)",
    "empty": "",
}
# Whatever bytes these are, four numbers can be made of them.
_FOUR_NUMBERS = ("offset ''", "length ''", "text", "binary text", "zip", "in 'model.onnx'")


@lru_cache(maxsize=1)
def relu(name: str = "x", out: str = "y") -> bytes:
    """The smallest model."""
    return _relu(name, out).SerializeToString()


def _relu(name: str, out: str) -> onnx.ModelProto:
    nodes = [helper.make_node("Exp", [name], ["m" + out], name="n" + out)]
    nodes.append(helper.make_node("Relu", ["m" + out], [out]))
    return graph(nodes, {name: (1, 4, 4, 4)}, [out])


def put(name: str, content: bytes | str) -> Make:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data)


def pipe(folder: Path, name: str) -> None:
    os.mkfifo(folder / name)


def listening(folder: Path, name: str) -> None:
    # Addresses have room for some hundred characters, which a folder of tests may take alone.
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{number}/{name}")
    finally:
        os.close(number)


def link(target: str) -> Callable[[Path, str], None]:
    return lambda folder, name: (folder / name).symlink_to(target.replace("SELF", name))


SPECIAL: dict[str, Callable[[Path, str], object]] = {
    "a pipe": pipe,
    "endless zeros": link("/dev/zero"),
    "random bytes": link("/dev/urandom"),
    "a device": link("/dev/null"),
    "a full device": link("/dev/full"),
    "a terminal": link("/dev/tty"),
    "a circle of links": link("SELF"),
    "a link to nothing": link("nothing"),
    "a socket": listening,
    "a folder": lambda folder, name: (folder / name).mkdir(),
    "empty": lambda folder, name: (folder / name).touch(),
    "text": lambda folder, name: (folder / name).write_text("hello\n" * 99),
    "binary text": lambda folder, name: (folder / name).write_bytes(b"\xff\xfe\x1b[2J" * 99),
    "zip": lambda folder, name: (folder / name).write_bytes(b"PK\3\4" + bytes(99)),
    "memory": link("/proc/self/mem"),
    "itself below a file": link("model.onnx/x"),
}


def cases() -> Iterator[Case]:
    yield from _special()
    yield from _damage()
    yield from _nests()
    yield from _names()
    yield from _weights()
    yield from _weights_elsewhere()
    yield from _shapes()


def _special() -> Iterator[Case]:
    commands = {
        "check": ("check", "m.onnx"),
        "compile": ("compile", "m.onnx", "-o", "out"),
        "tune": ("tune", "run", "m.onnx", "--offline", "-o", "out.json"),
    }
    for kind, make in SPECIAL.items():
        for name, command in commands.items():
            yield Case(
                "special files as models",
                f"{kind}, {name}",
                lambda folder, make=make: make(folder, "m.onnx"),
                command,
            )


def _damage() -> Iterator[Case]:
    models_cut_off = partial(Case, "models cut off")
    whole = network("squeezenet", size=32, width=0.25)
    light = network("mixed_small", size=31, width=1.0)
    rng = random.Random(7)
    for suffix, content in (("onnx", relu()), ("tflite", light), ("onnx", whole)):
        for at in sorted(rng.sample(range(len(content)), 12)):
            title, make = f"{suffix} of {len(content)} at {at}", put(f"m.{suffix}", content[:at])
            yield models_cut_off(title, make, ("check", f"m.{suffix}"), codes=ENDED)
    for suffix, content in (("onnx", relu()), ("tflite", light)):
        for number in range(30):
            damaged = bytearray(content)
            for _ in range(1 + number % 3):
                damaged[rng.randrange(min(len(content), 4000))] = rng.randrange(256)
            made, command = put(f"m.{suffix}", bytes(damaged)), ("check", f"m.{suffix}")
            yield Case("models with wrong bytes", f"{suffix} {number}", made, command, codes=ENDED)
    varint = b"\xff" * 9 + b"\x01"
    for name, content in {
        "a length beyond all files": b"\x08\x08\x3a" + varint,
        "a varint without end": b"\x08" + b"\xff" * 64,
        "field 0": b"\x08\x08\x00\x00",
        "a group": b"\x08\x08\x3b\x3c",
        "graph twice": b"\x08\x08" + b"\x3a\x00" * 2,
        "no version": b"\x3a\x00",
        "version of 64 bits": b"\x08" + varint + b"\x3a\x00",
        "a million empty graphs": b"\x08\x08" + b"\x3a\x00" * 1_000_000,
        "tflite, offsets in a circle": b"\x04\0\0\0TFL3" + b"\x04\0\0\0" * 64,
        "tflite, offset beyond": b"\xff\xff\xff\x7fTFL3" + bytes(64),
        "tflite, magic alone": b"\x1c\0\0\0TFL3",
    }.items():
        yield models_cut_off(name, put("m.onnx", content), ("check", "m.onnx"))


def _nests() -> Iterator[Case]:
    for depth in (50, 99, 120, 250, 400, 1200, 5000, 20_000):
        for command in ("check", "compile"):
            yield Case(
                "models within models",
                f"{depth} deep, {command}",
                lambda folder, depth=depth: (folder / "m.onnx").write_bytes(_nest(depth)),
                (command, "m.onnx"),
            )


def _field(number: int, content: bytes) -> bytes:
    length, out = len(content), b""
    while length > 0x7F:
        out += bytes([length & 0x7F | 0x80])
        length >>= 7
    return bytes([number << 3 | 2]) + out + bytes([length]) + content


def _nest(depth: int) -> bytes:
    """If in If in If, by hand: onnx itself would not write it."""
    inner = b""
    for _ in range(depth):
        attribute = _field(1, b"then_branch") + _field(6, inner) + b"\xa0\x01\x05"
        node = _field(1, b"c") + _field(2, b"y") + _field(4, b"If") + _field(5, attribute)
        inner = _field(1, node) + _field(2, b"g")
    return b"\x08\x08" + _field(7, inner) + _field(8, b"\x10\x11")


def _names() -> Iterator[Case]:
    names_of_files = partial(Case, "names of files")
    for kind, name in NAMES.items():
        model = _relu(name, name + "_out").SerializeToString()
        for command in (
            ("check", "m.onnx", "--json", "--html", "r.html"),
            ("compile", "m.onnx", "--shape", f"{name}:9,9"),
            ("check", "m.onnx", "--shape", f"q{name}:1"),
        ):
            if "\0" in "".join(command):
                continue
            yield Case(
                "names of tensors",
                f"{kind}, {' '.join(command)[:24]}",
                put("m.onnx", model),
                command,
                codes=ENDED | {2},
                makes=("r.html",),
            )
        file = name.replace("/", "_").replace("\0", "")[:200] + ".onnx"
        for command in (("check", file), ("check", file, "--html", "r.html"), ("compile", file)):
            yield names_of_files(
                f"{kind}, {' '.join(command)[:5]} {len(command)}",
                put(file, relu() if command[0] == "check" else b"\x08"),
                ("--help", *command) if file.startswith("-") else command,
                codes=ENDED | {2},
                makes=("r.html",),
            )
    raw = os.fsdecode(b"net\xff\xfe.onnx")
    for command in (("check", raw, "--json"), ("check", raw, "--html", "r.html")):
        title, make = f"not UTF-8, {' '.join(command[2:5])}", put(raw, relu())
        yield names_of_files(title, make, command, codes=frozenset({0}), makes=("r.html", "d\\xff"))


def _weights() -> Iterator[Case]:
    case = partial(Case, "weights beside models")

    def beside(make: Callable[[Path, str], object], **entries: object) -> Make:
        def write(folder: Path) -> None:
            tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=(4,))
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in {"location": "w.bin", **entries}.items():
                tensor.external_data.add(key=key, value=str(value))
            model = graph([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (4,)}, ["y"])
            model.graph.initializer.append(tensor)
            (folder / "m.onnx").write_bytes(model.SerializeToString())
            make(folder, "w.bin")

        return write

    def sparse(folder: Path, name: str) -> None:
        with (folder / name).open("wb") as file:
            file.truncate(16 << 30)

    def whole(folder: Path, name: str) -> None:
        (folder / name).write_bytes(np.ones(4, "float32").tobytes())

    makes = {kind: beside(make) for kind, make in SPECIAL.items()}
    for value in ("9" * 4300, -1, 10**18, 2**63 - 4, "+4", "1e3", "0x10", " 4", "\u0664", ""):
        makes[f"offset {str(value)[:20]!r}"] = beside(whole, offset=value)
        makes[f"length {str(value)[:20]!r}"] = beside(whole, length=value)
    for place in ("/etc/passwd", "../w.bin", "a" * 4000, "", "w\0.bin", ".", "model.onnx", "a//b"):
        makes[f"in {place[:20]!r}"] = beside(whole, location=place)
    makes["outside by a link"] = beside(link("/etc/passwd"))
    for name, make in makes.items():
        yield case(
            name, make, ("check", "m.onnx"), codes=ENDED if name in _FOUR_NUMBERS else Case.codes
        )
    yield case(
        "16 GiB of holes",
        lambda folder: (_vast(folder), sparse(folder, "w.bin")),
        ("compile", "m.onnx"),
        said="holes",
    )


def _vast(folder: Path) -> None:
    names = [f"w{i}" for i in range(16)]
    model = graph([helper.make_node("Sum", ["x", *names], ["y"])], {"x": (1,)}, ["y"])
    for number, name in enumerate(names):
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=(1 << 28,))
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="w.bin")
        tensor.external_data.add(key="offset", value=str(number << 30))
        model.graph.initializer.append(tensor)
    (folder / "m.onnx").write_bytes(model.SerializeToString())


def _shapes() -> Iterator[Case]:
    case = partial(Case, "shapes")
    for shape in (
        (10**18,),
        (2**31, 2**31),
        (2**62, 4),
        (1,) * 900,
        (0, 4),
        (-3, 4),
        (2**40, 1, 1, 1),
    ):
        model = graph([helper.make_node("Relu", ["x"], ["y"])], {"x": shape}, ["y"])
        yield case(
            f"of the file: {str(shape)[:30]}",
            put("m.onnx", model.SerializeToString()),
            ("check", "m.onnx"),
            codes=ENDED,  # what is 0 or less is open, and 1 where it is a batch
        )
    for text in (
        *("x:" + "9" * n for n in (18, 19, 20, 4300)),
        *("x:", ":1", "x", "x:-1", "x:0", "x:1..", "x:1..9/0", "x:1|", "x:1..99999999999", "x:1.5"),
        *("x:" + ",".join("1" * 2000), "x:\u0664", "x:1e9", "x: 1", "x:1,", "x:0x10"),
    ):
        name = f"of the command line: {text[:24]!r}"
        yield case(name, command=("compile", "model.onnx", "--shape", text), codes=Case.codes | {2})


def _weights_elsewhere() -> Iterator[Case]:
    def model(entries: dict[str, str], count: int = 1, extent: int = 4) -> bytes:
        names = [f"w{i}" for i in range(count)]
        proto = graph([helper.make_node("Sum", ["x", *names], ["y"])], {"x": (extent,)}, ["y"])
        for name in names:
            tensor = TensorProto(name=name, data_type=1, dims=(extent,))
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=value)
            proto.graph.initializer.append(tensor)
        return proto.SerializeToString()

    def beside(entries: dict[str, str], make: Make, **more: int) -> Make:
        def both(folder: Path) -> None:
            (folder / "m.onnx").write_bytes(model(entries, **more))
            make(folder)

        return both

    def zeros(name: str, count: int = 16) -> Make:
        return lambda folder: (folder / name).write_bytes(bytes(count))

    def hard(folder: Path) -> None:
        (folder / "w.bin").hardlink_to(folder / "m.onnx")

    def many(folder: Path) -> None:
        with (folder / "w.bin").open("wb") as file:
            for _ in range(32):
                file.write(b"\1" * (1 << 20))

    for name, make in {
        "below a link to the root": beside(
            {"location": "d/etc/hostname"}, lambda f: (f / "d").symlink_to("/")
        ),
        "below a link to here, 200 times": beside(
            {"location": "d/" * 200 + "w.bin"},
            lambda f: ((f / "d").symlink_to("."), zeros("w.bin")(f)),
        ),
        "below a folder that links to itself": beside(
            {"location": "d/w.bin"}, lambda f: (f / "d").symlink_to("d")
        ),
        "the model by another name": beside({"location": "w.bin"}, hard),
        "a checksum of escapes": beside(
            {"location": "w.bin", "checksum": "\x1b[2J"}, zeros("w.bin")
        ),
        "an unknown key": beside({"location": "w.bin", "\x1b[2J": "x"}, zeros("w.bin")),
        "no place": beside({"offset": "0"}, zeros("w.bin")),
        "an address": beside({"location": "file:///etc/passwd"}, zeros("w.bin")),
        "a place of Windows": beside({"location": "..\\w.bin"}, zeros("w.bin")),
        "a place of escapes": beside({"location": "\x1b]0;x\x07"}, zeros("w.bin")),
        "8 GiB by the same 32 MiB": beside({"location": "w.bin"}, many, count=256, extent=8 << 20),
        "30,000 files that are not there": beside({"location": "no.bin"}, zeros("x"), count=30_000),
    }.items():
        yield Case("weights elsewhere", name, make, ("check", "m.onnx"), codes=ENDED)
