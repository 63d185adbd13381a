"""TFLite files whose vectors name one table many times: small files, vast models."""

import struct
from collections.abc import Iterator

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.hostile.case import ENDED, Case, Make
from tests.hostile.firmware import edited_tflite
from tests.hostile.models import put

_LIST = 10 << 2
"""A list of flexbuffers, whose offsets are bytes."""


def cases() -> Iterator[Case]:
    for name, counts in {
        "a graph a million times": (1_000_000, 1),
        "a graph 9 times with 100,000 operators": (9, 100_000),
        "an operator a million times": (1, 1_000_000),
    }.items():
        yield Case(
            family="tables that are shared",
            name=name,
            make=put("m.tflite", _shared(*counts)),
            command=("check", "m.tflite"),
            codes=ENDED,
        )
    for name, stored in {
        "2^40 lists": _doubled(40),
        "lists within lists": _doubled(15),
        "lengths beyond": b"\xff" * 64,
        "300,000 bytes": bytes(300_000),
    }.items():
        yield Case(
            family="tables that are shared",
            name=f"options of {name}",
            make=_with_options(stored),
            command=("check", "m.tflite"),
            codes=ENDED,
        )


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
