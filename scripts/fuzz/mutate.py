"""Damage to a model file, by a generator of random numbers."""

import contextlib
import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

from fuzz import damage, rewire_onnx, rewire_tflite


def case(models: Sequence[tuple[str, bytes]], *, seed: int, number: int) -> tuple[str, bytes]:
    """Case `number`: the name of the seed model, and its damaged content."""
    rng = random.Random(f"{seed}/{number}")
    name, content = models[rng.randrange(len(models))]
    fields = _onnx_fields if name.endswith(".onnx") else _tflite_fields
    kind = rng.random()
    if kind < 0.5:
        return name, _rewired(name, content, models, rng)
    if kind < 0.8:
        return name, fields(content, rng)
    return name, damage.damaged(content, rng)


def _rewired(
    name: str, content: bytes, models: Sequence[tuple[str, bytes]], rng: random.Random
) -> bytes:
    if name.endswith(".tflite"):
        return rewire_tflite.rewire(content, rng)
    others = [rng.choice(models) for _ in range(4)]
    others = [model for name, model in others if name.endswith(".onnx")] or [content]
    return rewire_onnx.rewire(content, others, rng)


def _onnx_fields(content: bytes, rng: random.Random) -> bytes:
    """Set, remove, double or swap fields of messages anywhere in the model."""
    import onnx

    model = onnx.ModelProto.FromString(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        messages = _messages(model)
        names = _names(model)
        _edit(rng.choice(messages), names, rng)
    return bytes(model.SerializeToString())


def _messages(message: Any) -> list[Any]:
    found = [message]
    for descriptor, value in message.ListFields():
        if descriptor.type != descriptor.TYPE_MESSAGE:
            continue
        for inner in value if _repeated(descriptor) else [value]:
            found += _messages(inner)
    return found


def _names(model: Any) -> list[str]:
    nodes = list(model.graph.node)
    names = [n for node in nodes for n in (*node.input, *node.output)]
    return [*names, *(node.op_type for node in nodes), "", "x", "Conv", "If", "com.microsoft"]


def _edit(message: Any, names: list[str], rng: random.Random) -> None:
    descriptors = list(message.DESCRIPTOR.fields)
    present = [d for d, _ in message.ListFields()]
    descriptor = rng.choice(present if present and rng.random() < 0.8 else descriptors)
    name = descriptor.name
    if not _repeated(descriptor):
        if rng.random() < 0.15:
            message.ClearField(name)
        elif descriptor.type != descriptor.TYPE_MESSAGE:
            _set(lambda v: setattr(message, name, v), getattr(message, name), names, rng)
        return
    values = getattr(message, name)
    choice = rng.random()
    if values and choice < 0.25:
        del values[rng.randrange(len(values))]
    elif values and choice < 0.5:
        extra = values[rng.randrange(len(values))]
        values.add().CopyFrom(extra) if _is_message(descriptor) else values.append(extra)
    elif len(values) > 1 and choice < 0.65 and _is_message(descriptor):
        moved = type(values[0])()
        moved.CopyFrom(values[0])
        del values[0]
        values.add().CopyFrom(moved)
    elif not _is_message(descriptor) and values:
        at = rng.randrange(len(values))
        _set(lambda v: values.__setitem__(at, v), values[at], names, rng)


def _repeated(descriptor: Any) -> bool:
    found = getattr(descriptor, "is_repeated", None)
    return bool(descriptor.label == descriptor.LABEL_REPEATED if found is None else found)


def _is_message(descriptor: Any) -> bool:
    return bool(descriptor.type == descriptor.TYPE_MESSAGE)


def _set(assign: Callable[[Any], None], value: Any, names: list[str], rng: random.Random) -> None:
    if isinstance(value, bool):
        new: Any = not value
    elif isinstance(value, int):
        new = rng.choice((value + 1, value - 1, -value, value * 2, *damage.INTEGERS))
    elif isinstance(value, float):
        new = rng.choice(damage.FLOATS)
    elif isinstance(value, str):
        new = rng.choice(names)
    else:
        new = value[: rng.randrange(len(value) + 1)] + rng.randbytes(rng.choice((0, 1, 8)))
    try:
        assign(new)
    except (ValueError, TypeError):  # out of the field's range, or no value of its enumeration
        assign(type(value)())


def _tflite_fields(content: bytes, rng: random.Random) -> bytes:
    """Overwrite fields of flatbuffer tables, and elements of their vectors, in place."""
    import tflite

    damaged = bytearray(content)
    tables = _tables(tflite.Model.GetRootAs(damaged, 0))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        with contextlib.suppress(
            struct.error, TypeError
        ):  # an earlier damage leads out of the file
            _edit_table(rng.choice(tables), damaged, rng)
    return bytes(damaged)


def _edit_table(table: Any, damaged: bytearray, rng: random.Random) -> None:
    vtable = table.Pos - struct.unpack_from("<i", damaged, table.Pos)[0]
    count = (struct.unpack_from("<H", damaged, vtable)[0] - 4) // 2
    fields = [o for i in range(count) if (o := table.Offset(4 + 2 * i))]
    if not fields:
        return
    at = table.Pos + rng.choice(fields)
    if rng.random() < 0.5:  # perhaps a vector: its elements, or its length
        start = at + struct.unpack_from("<I", damaged, at)[0]
        length = struct.unpack_from("<I", damaged, start)[0]
        if 0 < length < 1 << 16 and start + 4 + 4 * length <= len(damaged):
            at = start + 4 * rng.randrange(length + 1)
    width, code = rng.choice(((1, "<b"), (4, "<i"), (4, "<i"), (8, "<q")))
    if at + width <= len(damaged):
        damaged[at : at + width] = damage.packed(code, rng.choice(damage.INTEGERS))


def _tables(model: Any) -> list[Any]:
    """The tables of a sound model: subgraphs, tensors, operators and their options, ..."""
    found = [model]
    for i in range(model.SubgraphsLength()):
        graph = model.Subgraphs(i)
        tensors = [graph.Tensors(t) for t in range(graph.TensorsLength())]
        operators = [graph.Operators(o) for o in range(graph.OperatorsLength())]
        found += [graph, *tensors, *operators]
        found += [q for t in tensors if (q := t.Quantization()) is not None]
        found += [o for op in operators if (o := op.BuiltinOptions()) is not None]
    found += [model.OperatorCodes(i) for i in range(model.OperatorCodesLength())]
    found += [model.Buffers(i) for i in range(model.BuffersLength())]
    return [getattr(table, "_tab", table) for table in found]
