"""Hostile firmware folders: code that was changed, reports that lie; and TFLite files for them."""

import hashlib
import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from adrenoc.base.files.outputs import LIST_FILE
from adrenoc.firmware.mcu.core import load_core
from adrenoc.firmware.mcu.folder import firmware_of, write_firmware
from adrenoc.firmware.mcu.program import make_program
from adrenoc.firmware.mcu.tflite.importer import network_of
from adrenoc.importers.tflite.file import read_tflite
from tests.hostile.case import ENDED, Case, Make
from tests.hostile.models import NAMES, put
from tests.mcu.networks import keywords

CORE = "cortex-m4"
_BUNDLE = frozenset({21})
_KEPT = frozenset({18})
_COMPILE = ("firmware", "compile", "k.tflite", "--device", "cortex-m4", "-o", "fw")


@lru_cache(maxsize=1)
def _model() -> bytes:
    return keywords(width=4, blocks=1, height=11)


@lru_cache(maxsize=1)
def _files() -> dict[str, bytes]:
    """What `compile` writes for the model."""
    with tempfile.TemporaryDirectory(prefix="hostile-firmware-") as made:
        model, output = Path(made, "k.tflite"), Path(made, "fw")
        model.write_bytes(_model())
        program = make_program(network_of(model, read_tflite(model, _model())), load_core(CORE))
        write_firmware(program, firmware_of(program, "0" * 64), output)
        return {path.name: path.read_bytes() for path in output.iterdir()}


def folder(change: Callable[[Path], object], name: str = "fw") -> Make:
    """A firmware folder with something changed, and its model."""

    def make(work: Path) -> None:
        (work / "k.tflite").write_bytes(_model())
        (work / name).mkdir()
        for file, content in _files().items():
            (work / name / file).write_bytes(content)
        change(work / name)

    return make


plain = folder(lambda root: None)


def _listed(root: Path) -> None:
    """List what is there now, as who forges a folder would."""
    plain = json.loads((root / LIST_FILE).read_text())
    plain["files"] = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.iterdir()
        if path.name != LIST_FILE
    }
    (root / LIST_FILE).write_text(json.dumps(plain))


def _report(change: Callable[[dict[str, Any]], object]) -> Make:
    def edit(root: Path) -> None:
        plain = json.loads((root / "model.json").read_text())
        change(plain)
        (root / "model.json").write_text(json.dumps(plain))
        _listed(root)

    return folder(edit)


def cases() -> Iterator[Case]:
    yield from _folders()
    yield from _reports()
    yield from _models()
    yield from _shared_cases()


def _replaced(name: str, by: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        (root / name).unlink()
        by(root / name)

    return change


def _folders() -> Iterator[Case]:
    case = partial(Case, "firmware folders")
    for name in ("model.c", "model.h", "model.json"):
        for kind, by in {
            "is missing": lambda path: None,
            "is a pipe": os.mkfifo,
            "is a link out": lambda path: path.symlink_to("/etc/passwd"),
            "is endless": lambda path: path.symlink_to("/dev/zero"),
            "was changed": lambda path: path.write_text('#include "/etc/passwd"\n'),
        }.items():
            made = folder(_replaced(name, by))
            yield case(f"{name} {kind}", made, ("firmware", "run", "fw"), codes=_BUNDLE)
    make = folder(_replaced("model.json", lambda path: path.write_text("{}")))
    yield case("model.json was changed, inspect", make, ("inspect", "fw"), codes=_BUNDLE)
    for kind, change in {
        "one more file": lambda root: (root / "mine.c").write_text(""),
        "a repository": lambda root: (root / ".git").mkdir(),
        "a changed file": lambda root: (root / "main.c").write_text("mine"),
        "a list that names other places": lambda root: (root / LIST_FILE).write_text(
            json.dumps({"adrenoc": "firmware folder", "version": 1, "files": {"../k.tflite": ""}})
        ),
        "a deep list": lambda root: (root / LIST_FILE).write_text("[" * 100_000),
        "the model in it": lambda root: ((root / "k.tflite").write_bytes(_model()), _listed(root)),
    }.items():
        command = list(_COMPILE)
        command[2] = "fw/k.tflite" if "model" in kind else "k.tflite"
        yield case(f"-o with {kind}", folder(change), tuple(command), codes=_KEPT)
    for command in (
        ("package", "fw", "--as", "aar", "-o", "x.aar"),
        ("device", "warm", "fw"),
        ("compile", "model.onnx", "-o", "fw"),
        ("firmware", "compile", "model.onnx", "--device", CORE),
    ):
        yield case(" ".join(command), plain, command)
    title, words = "without its tools", ("firmware", "run", "fw")
    yield case(title, plain, words, environment={"PATH": "/nowhere"}, codes=frozenset({25}))
    for name in ("-fw", "@fw", "f\nw", "f w$(id)"):
        yield case(
            f"called {name!r}",
            folder(lambda root: None, name),
            ("firmware", "run", "--", name),
            codes=frozenset({0, 25}),  # 25 where QEMU is not installed
        )


def _reports() -> Iterator[Case]:
    case = partial(Case, "reports of firmware")

    def border(**values) -> Callable[[dict[str, Any]], object]:
        return lambda plain: plain["inputs"][0].update(values)

    for name, change in {
        "a vast input": border(shape=[10**9, 10**9]),
        "a negative extent": border(shape=[-1, 4]),
        "no extent": border(shape=[0]),
        "text as a shape": border(shape="1111"),
        "objects as input": border(dtype="object"),
        "floats as input": border(dtype="float64"),
        "a device in another folder": lambda plain: plain.update(device="../../x"),
        "a number as device": lambda plain: plain.update(device=7),
        "no layers": lambda plain: plain.update(layers=[]),
        "a million layers": lambda plain: plain.update(layers=plain["layers"] * 200_000),
        "a layer of lists": lambda plain: plain["layers"][0].update(name=[1], operator={}),
        "an unknown key": lambda plain: plain.update(more=1),
        "another version": lambda plain: plain.update(version=99),
        "another output": lambda plain: plain["outputs"][0].update(shape=[1, 3]),
        "an output twice": lambda plain: plain.update(outputs=plain["outputs"] * 2),
        "no inputs": lambda plain: plain.update(inputs=[]),
    }.items():
        yield case(name, _report(change), ("firmware", "run", "fw"))
    for name in ("file", "arr_0", "../../x", "\x1b[2J"):
        yield case(
            f"an output called {name!r}",
            _report(lambda plain, name=name: plain["outputs"][0].update(name=name)),
            ("firmware", "run", "fw", "--save", "o.npz"),
            codes=frozenset({0, 25}),
            makes=("o.npz",),
        )


def edited_tflite(change: Callable[[Any], object]) -> Make:
    def make(work: Path) -> None:
        model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(_model(), 0))
        change(model)
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        (work / "m.tflite").write_bytes(bytes(builder.Output()))

    return make


def _models() -> Iterator[Case]:
    def calls_itself(code: int, options: int, kind: type, keys: tuple[str, str]):
        def change(model) -> None:
            graph = model.subgraphs[0]
            added = schema.OperatorCodeT()
            added.builtinCode, added.version = code, 1
            model.operatorCodes.append(added)
            operator = schema.OperatorT()
            operator.opcodeIndex = len(model.operatorCodes) - 1
            operator.inputs, operator.outputs = list(graph.inputs), list(graph.outputs)
            operator.builtinOptionsType, operator.builtinOptions = options, kind()
            for key in keys:
                setattr(operator.builtinOptions, key, 0)
            graph.operators = [operator]

        return change

    def reads(number: int, index: int):
        def change(model) -> None:
            operator = model.subgraphs[0].operators[0]
            operator.inputs = list(operator.inputs)
            operator.inputs[number] = operator.outputs[0] if index == -2 else index

        return change

    def quantised(key: str, value: float, dtype: str):
        def change(model) -> None:
            for tensor in model.subgraphs[0].tensors:
                held = getattr(tensor.quantization, key, None)
                if held is not None:
                    setattr(tensor.quantization, key, np.array([value] * len(held), dtype))

        return change

    def strided(value: int):
        def change(model) -> None:
            for operator in model.subgraphs[0].operators:
                if hasattr(operator.builtinOptions, "strideW"):
                    operator.builtinOptions.strideW = value

        return change

    def called(name: str):
        def change(model) -> None:
            for tensor in model.subgraphs[0].tensors:
                tensor.name = name.encode()

        return change

    def graph(**values):
        return lambda model: [setattr(model.subgraphs[0], k, v) for k, v in values.items()]

    options = schema.BuiltinOptions
    branches = ("thenSubgraphIndex", "elseSubgraphIndex")
    changes: dict[str, Any] = {
        "a loop that is its own body": calls_itself(
            119,
            options.WhileOptions,
            schema.WhileOptionsT,
            ("condSubgraphIndex", "bodySubgraphIndex"),
        ),
        "a branch that is itself": calls_itself(
            118, options.IfOptions, schema.IfOptionsT, branches
        ),
        "operators backwards": lambda model: model.subgraphs[0].operators.reverse(),
        "an operator that reads itself": reads(0, -2),
        "no weights": reads(1, -1),
        "no data": reads(0, -1),
        "strides of 0": strided(0),
        "strides of 2^31": strided(2**31 - 1),
        "no operators": graph(operators=[]),
        "outputs that are not there": graph(outputs=np.array([9999], "int32")),
        "inputs that are not there": graph(inputs=np.array([-7], "int32")),
        "an operator twice": lambda model: model.subgraphs[0].operators.append(
            model.subgraphs[0].operators[0]
        ),
        **{
            f"scales of {value}": quantised("scale", value, "float32")
            for value in (0.0, -1.0, float("nan"), float("inf"), 1e-40, 1e38)
        },
        **{f"zeros of {value}": quantised("zeroPoint", value, "int64") for value in (999, 1 << 62)},
        "names that end comments": called("*/ int x; /*"),
        "names of three letters": called('??/\n#include "/etc/passwd"'),
        "names with escapes": called(NAMES["clear"]),
    }
    for name, change in changes.items():
        for device, room in ((CORE, ("firmware",)), ("adreno", ())):
            make, command = edited_tflite(change), (*room, "check", "m.tflite", "--device", device)
            yield Case("TFLite files", f"{name}, for {device}", make, command, codes=ENDED)


_LIST = 10 << 2
"""A list of flexbuffers, whose offsets are bytes."""


def _shared_cases() -> Iterator[Case]:
    case = partial(Case, "tables that are shared", command=("check", "m.tflite"), codes=ENDED)
    for name, counts in {
        "a graph a million times": (1_000_000, 1),
        "a graph 9 times with 100,000 operators": (9, 100_000),
        "an operator a million times": (1, 1_000_000),
    }.items():
        yield case(name=name, make=put("m.tflite", _shared(*counts)))
    for name, stored in {
        "2^40 lists": _doubled(40),
        "lists within lists": _doubled(15),
        "lengths beyond": b"\xff" * 64,
        "300,000 bytes": bytes(300_000),
    }.items():
        yield case(name=f"options of {name}", make=_with_options(stored))


def _doubled(levels: int) -> bytes:
    """Options in flexbuffers: lists of two, both of them the same list of the level below."""
    out, at = bytearray(b"\0"), 1
    for _ in range(levels):
        out += b"\2"
        first = len(out)
        out += bytes([first - at, first + 1 - at, _LIST, _LIST])
        at = first
    return bytes(out + bytes([len(out) - at, _LIST, 1]))


def _with_options(stored: bytes) -> Make:
    """A TFLite file whose only operator is a custom one with these options."""

    def change(model) -> None:
        code = schema.OperatorCodeT()
        code.builtinCode, code.customCode = 32, b"TFLite_Detection_PostProcess"
        model.operatorCodes = [code]
        operator = model.subgraphs[0].operators[0]
        operator.opcodeIndex, operator.customOptions = 0, np.frombuffer(stored, "uint8")
        operator.builtinOptionsType, operator.builtinOptions = 0, None
        model.subgraphs[0].operators = [operator]
        model.subgraphs[0].outputs = operator.outputs

    return edited_tflite(change)


def _shared(graphs: int, operators: int) -> bytes:
    """A model by hand: offsets are from where they stand, and may all lead to one place."""

    def table(fields: dict[int, int], size: int) -> tuple[bytes, dict[int, int]]:
        """A vtable and a table of offsets to fill in; where each field stands."""
        last = max(fields, default=-1)
        places = {field: 4 + 4 * n for n, field in enumerate(fields)}
        entries = [places.get(field, 0) for field in range(last + 1)]
        vtable = struct.pack(f"<HH{len(entries)}H", 4 + 2 * len(entries), 4 + 4 * size, *entries)
        vtable += bytes(-len(vtable) % 4)
        return vtable, places

    out = bytearray(b"\0\0\0\0TFL3")

    def put_table(fields: list[int]) -> tuple[int, dict[int, int]]:
        vtable, places = table(dict.fromkeys(fields, 0), len(fields))
        start = len(out)
        out.extend(vtable)
        at = len(out)
        out.extend(struct.pack("<i", at - start) + bytes(4 * len(fields)))
        return at, {field: at + place for field, place in places.items()}

    # Offsets of tables in vectors are unsigned: the tables lie behind their vectors.
    root, fields = put_table([0, 1, 2, 4])
    struct.pack_into("<I", out, 0, root)
    struct.pack_into("<I", out, fields[0], 3)
    vectors: list[tuple[int, int]] = []

    def later(at: int, count: int) -> int:
        struct.pack_into("<I", out, at, len(out) - at)
        out.extend(struct.pack("<I", count))
        vectors.append((len(out), count))
        out.extend(bytes(4 * count))
        return len(vectors) - 1

    def fill(index: int, target: int) -> None:
        first, count = vectors[index]
        numbers = np.uint32(target) - (np.uint32(first) + 4 * np.arange(count, dtype="uint32"))
        out[first : first + 4 * count] = numbers.astype("<u4").tobytes()

    codes, subgraphs, buffers = (later(fields[f], n) for f, n in ((1, 1), (2, graphs), (4, 1)))
    code, _ = put_table([])
    fill(codes, code)
    subgraph, inner = put_table([3])
    fill(subgraphs, subgraph)
    held = later(inner[3], operators)
    operator, _ = put_table([])
    fill(held, operator)
    buffer, _ = put_table([])
    fill(buffers, buffer)
    return bytes(out)
