"""Containers of LiteRT-LM around a decoder in TFLite: a zip archive (.task), or .litertlm."""

import io
import struct
import zipfile
import zlib
from collections.abc import Sequence

import flatbuffers

_BLOCK_BYTES = 16 << 10
_TFLITE_MODEL, _METADATA, _TOKENIZER = 3, 5, 6
_TEXT = 9


def write_task(model: bytes, *, compressed: bool = False) -> bytes:
    """A .task of a model, stored as it is unless told otherwise."""
    file = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", kind) as archive:
        archive.writestr("TOKENIZER_MODEL", b"no tokens")
        archive.writestr("TF_LITE_PREFILL_DECODE", model)
    return file.getvalue()


def write_litertlm(model: bytes, *, tokenizer: bytes = b"", ends: Sequence[int] = ()) -> bytes:
    """A .litertlm of a model, perhaps with a tokenizer.json and with the tokens that end a text."""
    sections: list[tuple[int, dict[str, str], bytes]] = []
    if ends:
        ids = bytes(ends)
        inner = b"\x0a" + bytes([len(ids)]) + ids
        union = b"\x0a" + bytes([len(inner)]) + inner
        sections.append((_METADATA, {}, b"\x12" + bytes([len(union)]) + union))
    if tokenizer:
        packed = struct.pack("<Q", len(tokenizer)) + zlib.compress(tokenizer)
        sections.append((_TOKENIZER, {}, packed))
    sections.append((_TFLITE_MODEL, {"model_type": "tf_lite_prefill_decode"}, model))
    places, at = [], _BLOCK_BYTES
    for _, _, content in sections:
        places.append((at, at + len(content)))
        at += -(-len(content) // _BLOCK_BYTES) * _BLOCK_BYTES
    header = _header([(kind, words) for kind, words, _ in sections], places)
    whole = bytearray(b"LITERTLM" + struct.pack("<IIIIQ", 1, 1, 0, 0, 32 + len(header)) + header)
    for (begin, _), (_, _, content) in zip(places, sections, strict=True):
        whole += bytes(begin - len(whole)) + content
    return bytes(whole)


def _header(
    sections: Sequence[tuple[int, dict[str, str]]], places: Sequence[tuple[int, int]]
) -> bytes:
    builder = flatbuffers.Builder(1024)
    objects = []
    for (kind, words), (begin, end) in zip(sections, places, strict=True):
        items = _vector(builder, [_pair(builder, k, v) for k, v in words.items()])
        builder.StartObject(4)
        builder.PrependUOffsetTRelativeSlot(0, items, 0)
        builder.PrependUint64Slot(1, begin, 0)
        builder.PrependUint64Slot(2, end, 0)
        builder.PrependUint8Slot(3, kind, 0)
        objects.append(builder.EndObject())
    listed = _vector(builder, objects)
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, listed, 0)
    metadata = builder.EndObject()
    builder.StartObject(2)
    builder.PrependUOffsetTRelativeSlot(1, metadata, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def _pair(builder: flatbuffers.Builder, key: str, value: str) -> int:
    name, text = builder.CreateString(key), builder.CreateString(value)
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, text, 0)
    said = builder.EndObject()
    builder.StartObject(3)
    builder.PrependUOffsetTRelativeSlot(0, name, 0)
    builder.PrependUint8Slot(1, _TEXT, 0)
    builder.PrependUOffsetTRelativeSlot(2, said, 0)
    return int(builder.EndObject())


def _vector(builder: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())
