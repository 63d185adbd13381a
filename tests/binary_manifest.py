"""Writes AndroidManifest.xml in the binary form that it has in an APK."""

import struct

Attributes = dict[str, "str | bool | int"]


def binary_manifest(
    elements: list[tuple[str, Attributes]],
    *,
    utf8: bool = False,
    hidden: dict[str, int] | None = None,
) -> bytes:
    """Elements beside each other, as aapt would write them.

    The names of `hidden` are empty in the file, and known by their number alone.
    """
    hidden = hidden or {}
    names = [*hidden]  # numbers belong to the first strings
    for element, attributes in elements:
        names += [element, *attributes, *(v for v in attributes.values() if isinstance(v, str))]
    names = list(dict.fromkeys(names))
    chunks = _strings(["" if name in hidden else name for name in names], utf8=utf8)
    chunks += _chunk(0x0180, 8, b"".join(struct.pack("<I", n) for n in hidden.values()))
    for element, attributes in elements:
        body = b"".join(_attribute(names, key, value) for key, value in attributes.items())
        head = struct.pack("<iiHHHHHH", -1, names.index(element), 20, 20, len(attributes), 0, 0, 0)
        chunks += _chunk(0x0102, 16, struct.pack("<II", 1, 0xFFFFFFFF) + head + body)
        end = struct.pack("<IIii", 1, 0xFFFFFFFF, -1, names.index(element))
        chunks += _chunk(0x0103, 16, end)
    return struct.pack("<HHI", 0x0003, 8, 8 + len(chunks)) + chunks


def _chunk(kind: int, header_bytes: int, rest: bytes) -> bytes:
    return struct.pack("<HHI", kind, header_bytes, 8 + len(rest)) + rest


def _attribute(names: list[str], key: str, value: str | bool | int) -> bytes:
    if isinstance(value, str):
        raw, kind, data = names.index(value), 0x03, names.index(value)
    elif isinstance(value, bool):
        raw, kind, data = -1, 0x12, 0xFFFFFFFF if value else 0
    else:
        raw, kind, data = -1, 0x10, value
    return struct.pack("<iiiHBBI", -1, names.index(key), raw, 8, 0, kind, data)


def _strings(names: list[str], *, utf8: bool) -> bytes:
    content, offsets = b"", []
    for name in names:
        offsets.append(len(content))
        if utf8:
            coded = name.encode()
            content += _length(len(name), "B") + _length(len(coded), "B") + coded + b"\0"
        else:
            coded = name.encode("utf-16-le")
            content += _length(len(coded) // 2, "H") + coded + b"\0\0"
    content += bytes(-len(content) % 4)
    start = 28 + 4 * len(names)
    head = struct.pack("<IIIII", len(names), 0, 1 << 8 if utf8 else 0, start, 0)
    return _chunk(0x0001, 28, head + b"".join(struct.pack("<I", o) for o in offsets) + content)


def _length(count: int, unit: str) -> bytes:
    bits = 8 * struct.calcsize(unit)
    if count < 1 << (bits - 1):
        return struct.pack(f"<{unit}", count)
    high = 1 << (bits - 1)
    return struct.pack(f"<{unit}{unit}", high | count >> bits, count & ((1 << bits) - 1))
