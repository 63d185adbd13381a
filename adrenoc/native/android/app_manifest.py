"""Read AndroidManifest.xml, as text or in the binary form that it has in an APK."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from xml.etree import ElementTree

# Chunks of the binary form, and types of values in it.  Source: ResourceTypes.h of Android's
# open sources.
_STRINGS, _XML, _ELEMENT, _IDS = 0x0001, 0x0003, 0x0102, 0x0180
_UTF8 = 1 << 8
_IS_STRING, _IS_BOOLEAN = 0x03, 0x12
# Names that a shrinker may have emptied, by the number that stays (android.R.attr).
_NAMES = {
    0x01010003: "name",
    0x0101020C: "minSdkVersion",
    0x0101028E: "required",
    0x010104EA: "extractNativeLibs",
}


@dataclass(frozen=True, kw_only=True)
class Element:
    """One element: its name, and its attributes without namespaces, values as in the text form."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)


def read_manifest(content: bytes) -> tuple[Element, ...]:
    """All elements of a manifest, in the order in which they begin.

    Raises:
        ValueError: it is neither XML nor its binary form, or it is damaged.
    """
    if content[:2] != struct.pack("<H", _XML):
        try:
            tree = ElementTree.fromstring(content)
        except ElementTree.ParseError as error:
            raise ValueError(f"no XML: {error}") from error
        return tuple(
            Element(name=node.tag, attributes={_local(k): v for k, v in node.attrib.items()})
            for node in tree.iter()
        )
    try:
        return _binary(content)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"damaged: {error}") from error


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _binary(content: bytes) -> tuple[Element, ...]:
    names: list[str] = []
    elements = []
    _, place, end = struct.unpack_from("<HHI", content)
    if not 8 <= place <= end <= len(content):
        raise ValueError(f"damaged: it promises {end} bytes and has {len(content)}")
    while place < end:
        kind, header_bytes, size = struct.unpack_from("<HHI", content, place)
        chunk = content[place : place + size]
        if size < header_bytes or header_bytes < 8 or len(chunk) < size:
            raise ValueError(f"damaged: a chunk of {size} bytes at {place}")
        if kind == _STRINGS:
            names = _strings(chunk)
        elif kind == _IDS:
            for index in range((size - header_bytes) // 4):
                (number,) = struct.unpack_from("<I", chunk, header_bytes + 4 * index)
                names[index] = _NAMES.get(number, names[index])
        elif kind == _ELEMENT:
            elements.append(_element(chunk, header_bytes, names))
        place += size
    return tuple(elements)


def _strings(chunk: bytes) -> list[str]:
    _, header_bytes, _, count, _, flags, start, _ = struct.unpack_from("<HHIIIIII", chunk)
    found = []
    for index in range(count):
        (offset,) = struct.unpack_from("<I", chunk, header_bytes + 4 * index)
        place = start + offset
        if flags & _UTF8:
            _, place = _length(chunk, place, "B")  # in characters
            length, place = _length(chunk, place, "B")
            found.append(chunk[place : place + length].decode("utf-8"))
        else:
            length, place = _length(chunk, place, "H")
            found.append(chunk[place : place + 2 * length].decode("utf-16-le"))
    return found


def _length(chunk: bytes, place: int, unit: str) -> tuple[int, int]:
    """Return a length of one unit or, with its highest bit set, two; and where what it counts
    begins."""
    width = struct.calcsize(unit)
    high = 1 << (8 * width - 1)
    (length,) = struct.unpack_from(f"<{unit}", chunk, place)
    if not length & high:
        return length, place + width
    (more,) = struct.unpack_from(f"<{unit}", chunk, place + width)
    return (length & ~high) << (8 * width) | more, place + 2 * width


def _element(chunk: bytes, header_bytes: int, names: list[str]) -> Element:
    _, name, start, width, count = struct.unpack_from("<iiHHH", chunk, header_bytes)
    attributes = {}
    for index in range(count):
        place = header_bytes + start + width * index
        _, key, raw, _, _, kind, data = struct.unpack_from("<iiiHBBI", chunk, place)
        if kind == _IS_STRING:
            value = names[data]
        elif kind == _IS_BOOLEAN:
            value = "true" if data else "false"
        else:
            value = names[raw] if raw >= 0 else str(data)
        attributes[names[key]] = value
    return Element(name=names[name], attributes=attributes)
