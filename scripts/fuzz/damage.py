"""Damage to bytes of any kind, by a generator of random numbers."""

import random
import struct
from typing import Any

INTEGERS = (
    *(0, 1, -1, 2, 3, 7, 127, 128, 255, 256, 16384, 16385, 65535, 65536),
    *(2**24, 2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**40, 2**63 - 1, -(2**63)),
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 3.4e38, float("inf"), float("-inf"), float("nan"))


def damaged(content: bytes, rng: random.Random) -> bytes:
    """The content with bits flipped, or pieces cut, overwritten, moved or removed."""
    return rng.choice((flip, flip, cut, overwrite, move, remove))(bytearray(content), rng)


def flip(content: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def cut(content: bytearray, rng: random.Random) -> bytes:
    return bytes(content[: rng.randrange(len(content))])


def overwrite(content: bytearray, rng: random.Random) -> bytes:
    width, code = rng.choice(((1, "<b"), (2, "<h"), (4, "<i"), (8, "<q")))
    at = rng.randrange(max(1, len(content) - width))
    content[at : at + width] = packed(code, rng.choice(INTEGERS))
    return bytes(content)


def packed(code: str, value: int) -> bytes:
    width = struct.calcsize(code)
    return (value & ((1 << (8 * width)) - 1)).to_bytes(width, "little")


def move(content: bytearray, rng: random.Random) -> bytes:
    size = rng.randrange(1, 1 + min(64, len(content)))
    source = rng.randrange(len(content))
    at = rng.randrange(len(content))
    content[at:at] = content[source : source + size]
    return bytes(content)


def remove(content: bytearray, rng: random.Random) -> bytes:
    at = rng.randrange(len(content))
    del content[at : at + rng.randrange(1, 64)]
    return bytes(content)


def places_in(plain: Any) -> list[tuple[Any, Any]]:
    """Every place of a value within a list or an object of JSON: what holds it, and its key."""
    found: list[tuple[Any, Any]] = []
    waiting = [plain] if isinstance(plain, dict | list) else []
    while waiting:
        holder = waiting.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, inner in items:
            found.append((holder, key))
            if isinstance(inner, dict | list):
                waiting.append(inner)
    return found
