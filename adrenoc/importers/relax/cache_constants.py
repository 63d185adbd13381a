"""What the constants behind the operands of attention over caches are, by its attributes.

Each kind stands there where its attribute is not zero, in the order of the table.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

Kinds = Sequence[tuple[str, str, int]]
"""(name, attribute that is not zero where it is there, how many operands it is)."""

_OF_HEADS: Kinds = (("tables", "rotated", 2), ("gains", "normed", 1))
OF_ROWS: Kinds = (*_OF_HEADS, ("scales", "bits", 1))
"""Of what adds rows: cosines and sines, the weights of a norm of each head, and the scales of all
channels of a cache that keeps numbers in so many bits."""
OF_ATTENTION: Kinds = (
    *_OF_HEADS,
    ("sinks", "sunk", 1),
    ("bias", "biased", 1),
    ("scales", "bits", 2),
)
"""Of attention: also a score of each head beside those of rows, what is added to the scores of each
head [heads, rows], by how many rows a row lies before the token, and the scales of keys and of
values."""


ROW, KEYS, VALUES = 1, 2, 3
"""Inputs of attention behind its queries: the number of the first row, then caches."""

NIBBLE = 4
"""Bits of which a byte of a cache has two numbers, the first in the low ones."""


def rows_of(held: int, attrs: Mapping[str, Any]) -> int:
    """Return how many rows there may be of a cache that holds so many, which are the last ones."""
    return int(attrs["context"]) or held


def head_of(width: int, bits: int) -> int:
    """Return numbers of a head whose cache has so wide rows of so many bits (0: floats)."""
    return 2 * width if bits == NIBBLE else width


def name_constants(
    kinds: Kinds, attrs: Mapping[str, Any], others: Sequence[T]
) -> dict[str, Sequence[T]]:
    """Return the constants of each kind; none of those that are not there."""
    found: dict[str, Sequence[T]] = {}
    begin = 0
    for name, attribute, count in kinds:
        end = begin + (count if int(attrs[attribute]) else 0)
        found[name] = others[begin:end]
        begin = end
    return found
