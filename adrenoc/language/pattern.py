"""Automata of the patterns by which tokenizers cut texts.

A pattern is a regular expression as Oniguruma reads it, of alternatives that are tried in order.
Its automaton takes one code point a step and finds the match that the first fitting alternative
gives, not the longest.  A state is therefore an ordered list of places in the pattern, as in Rust's
regex-automata, and a look ahead is decided by the code point that comes.

Which code points a class such as `[^\\s\\p{L}]` holds hangs on the library's version of Unicode, so
the library is asked.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Points: TypeAlias = NDArray[np.bool_]
"""Whether a set holds each of `POINTS`."""
Learn: TypeAlias = Callable[[str], Points]
"""The text of a class or an escape -> the code points that it matches."""

_SINGLE = (range(0x34000), range(0xE0000, 0xE01F0))
"""Code points that are asked for one by one, without surrogates."""
_UNIFORM = (0x34000, 0xE01F0, 0xF0000, 0xFFFFE, 0x100000, 0x10FFFE)
"""Where ranges begin that are unassigned, private or noncharacters as a whole."""
SURROGATES = range(0xD800, 0xE000)
LAST_POINT = 0x10FFFF
POINTS = np.array(
    sorted({p for some in _SINGLE for p in some if p not in SURROGATES} | set(_UNIFORM)),
    dtype=np.uint32,
)
"""The code points that stand for all: each for itself and those up to the next."""
ACCEPTS = 1 << 15
"""The bit of a transition before which a match ends."""
_MOST_STATES = 4096
_MOST_REPEATS = 1000


class UnfitError(ValueError):
    """What the tables of a tokenizer do not hold; the message names it."""


@dataclass(frozen=True, kw_only=True)
class Automaton:
    """`pages` and `classes` give a code point's class, `steps` what follows.

    The class of a code point p is classes[256 * pages[p >> 8] + (p & 255)].  A row of `steps` is a
    state, a column a class and the last the end of the text; an element is the next state, with
    `ACCEPTS` where a match ends before the code point.  State 0 goes nowhere, state 1 begins."""

    pages: NDArray[np.uint16]
    classes: NDArray[np.uint8]
    steps: NDArray[np.uint16]


@dataclass(frozen=True)
class _Take:
    """Takes one code point of a set."""

    points: int
    then: int


@dataclass(frozen=True)
class _Look:
    """Goes on where the next code point is of a set, or where it is not and at the end."""

    points: int
    is_wanted: bool
    then: int


@dataclass(frozen=True)
class _Split:
    """Tries one place before the other."""

    first: int
    second: int


@dataclass(frozen=True)
class _Match:
    """Ends the pattern."""


@dataclass
class _Program:
    """The places of a pattern, which are built from its end to its beginning."""

    learn: Learn
    places: list[_Take | _Look | _Split | _Match] = field(default_factory=list)
    sets: list[Points] = field(default_factory=list)
    _known: dict[str, int] = field(default_factory=dict)

    def add(self, place: _Take | _Look | _Split | _Match) -> int:
        self.places.append(place)
        return len(self.places) - 1

    def set_of(self, source: str) -> int:
        if source not in self._known:
            self._known[source] = len(self.sets)
            self.sets.append(self.learn(source))
        return self._known[source]


_Node: TypeAlias = Callable[[_Program, int], int]
"""Puts a part of a pattern before a place; returns where the part begins."""


class _Reader:
    """Reads a pattern, by recursive descent."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def read(self) -> _Node:
        node = self._read_choice(folds=False)
        if self._at < len(self._text):
            raise self._unfit()
        return node

    def _read_choice(self, *, folds: bool) -> _Node:
        parts = [self._read_sequence(folds=folds)]
        while self._take("|"):
            parts.append(self._read_sequence(folds=folds))

        def build(program: _Program, then: int) -> int:
            starts = [part(program, then) for part in parts]
            begin = starts[-1]
            for start in reversed(starts[:-1]):
                begin = program.add(_Split(start, begin))
            return begin

        return build

    def _read_sequence(self, *, folds: bool) -> _Node:
        parts: list[_Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            parts.append(self._read_repeats(self._read_atom(folds=folds)))

        def build(program: _Program, then: int) -> int:
            for part in reversed(parts):
                then = part(program, then)
            return then

        return build

    def _read_repeats(self, node: _Node) -> _Node:
        if self._at >= len(self._text):
            return node
        least, most = 1, 1
        mark = self._text[self._at]
        if mark in "?*+":
            self._at += 1
            least, most = {"?": (0, 1), "*": (0, -1), "+": (1, -1)}[mark]
        elif mark == "{":
            end = self._text.find("}", self._at)
            lower, comma, upper = self._text[self._at + 1 : end].partition(",")
            if end < 0 or not (lower + upper).isdecimal():
                raise self._unfit()
            least = int(lower or 0)
            most = (int(upper) if upper else -1) if comma else least
            self._at = end + 1
        else:
            return node
        if self._at < len(self._text) and self._text[self._at] in "?+*{":
            raise self._unfit()  # lazy or possessive
        if max(least, most) > _MOST_REPEATS:
            raise self._unfit()
        return _repeat(node, least, most)

    def _read_atom(self, *, folds: bool) -> _Node:
        if self._take("("):
            return self._read_group(folds=folds)
        begin = self._at
        mark = self._text[self._at]
        if mark in "^$?*+{":
            raise self._unfit()
        if mark == "[":
            self._skip_class()
        elif mark == "\\":
            kind = self._text[self._at + 1 : self._at + 2]
            if not kind or kind in "bBAzZGKRXkg" or kind.isdecimal():
                raise self._unfit()
            self._at += 2
            if kind in "pPx" and self._text.startswith("{", self._at):
                self._at = self._text.find("}", self._at) + 1
            elif kind in "xu":
                self._at += 2 if kind == "x" else 4
        else:
            self._at += 1
        source = self._text[begin : self._at]
        return _take(f"(?i:{source})" if folds else source)

    def _read_group(self, *, folds: bool) -> _Node:
        for mark, is_wanted in (("?!", False), ("?=", True)):
            if self._take(mark):
                begin = self._at
                self._read_atom(folds=False)
                source = self._text[begin : self._at]
                if source.startswith("(") or not self._take(")"):
                    raise self._unfit()
                return _look(source, is_wanted)
        if self._take("?i:"):
            folds = True
        elif not self._take("?:") and self._text.startswith("?", self._at):
            raise self._unfit()
        node = self._read_choice(folds=folds)
        if not self._take(")"):
            raise self._unfit()
        return node

    def _skip_class(self) -> None:
        depth = 0
        while self._at < len(self._text):
            mark = self._text[self._at]
            self._at += 2 if mark == "\\" else 1
            depth += (mark == "[") - (mark == "]")
            if depth == 0:
                return
        raise self._unfit()

    def _take(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _unfit(self) -> UnfitError:
        return UnfitError(f"its pattern {self._text!r} at {self._text[self._at : self._at + 8]!r}")


def _take(source: str) -> _Node:
    return lambda program, then: program.add(_Take(program.set_of(source), then))


def _look(source: str, is_wanted: bool) -> _Node:
    return lambda program, then: program.add(_Look(program.set_of(source), is_wanted, then))


def _repeat(node: _Node, least: int, most: int) -> _Node:
    """Return a part so many times, as often as it goes; `most` of -1 is without end."""

    def build(program: _Program, then: int) -> int:
        if most < 0:
            again = program.add(_Match())  # its place; what it is follows
            begin = node(program, again)
            program.places[again] = _Split(begin, then)
            then = again
        for _ in range(most - least):
            then = program.add(_Split(node(program, then), then))
        for _ in range(least):
            then = node(program, then)
        return then

    return build


def compile_pattern(text: str, learn: Learn) -> Automaton:
    """Make the automaton of a pattern."""
    program = _Program(learn)
    end = program.add(_Match())
    begin = _Reader(text).read()(program, end)
    class_of, kinds = _classify(program.sets)
    if len(kinds) > np.iinfo(np.uint8).max:
        raise UnfitError(f"its pattern {text!r}, which tells too many kinds of letters apart")
    states: dict[tuple[int, ...], int] = {(): 0, (begin,): 1}
    rows: list[list[int]] = [[0] * (len(kinds) + 1)]
    waiting: list[tuple[int, ...]] = [(begin,)]
    while waiting:
        state = waiting.pop(0)
        row = []
        for kind in (*kinds, None):
            following, accepts = _step(program.places, state, kind)
            if following not in states:
                states[following] = len(states)
                waiting.append(following)
            row.append(states[following] | (ACCEPTS if accepts else 0))
        rows.append(row)
        if len(states) > _MOST_STATES:
            raise UnfitError(f"its pattern {text!r}, whose automaton is too large")
    steps = np.array(rows, dtype=np.uint16)
    if (steps[1] & ACCEPTS).any():
        raise UnfitError(f"its pattern {text!r}, which may match nothing")
    pages, classes = _in_pages(class_of)
    return Automaton(pages=pages, classes=classes, steps=steps)


def _classify(sets: Sequence[Points]) -> tuple[NDArray[np.uint8], list[Points]]:
    """Return the class of each of `POINTS`, and whether each set holds those of a class."""
    class_of = np.zeros(len(POINTS), dtype=np.int64)
    for points in sets:
        doubled = 2 * class_of + points
        # Renumbered after each, so that the numbers stay small.
        class_of = (np.cumsum(np.bincount(doubled) > 0) - 1)[doubled]
    held = np.zeros((class_of.max() + 1, len(sets)), dtype=np.bool_)
    held[class_of] = np.array(sets).T  # points of a class write the same
    return class_of.astype(np.uint8), list(held)


def _step(
    places: Sequence[_Take | _Look | _Split | _Match],
    state: Sequence[int],
    kind: Points | None,
) -> tuple[tuple[int, ...], bool]:
    """Return where a state goes by a code point of a kind (None: at the end), and whether a match
    ends before it. `kind` says whether each set of the pattern holds it."""
    following: dict[int, None] = {}
    for place in _reach(places, state, kind):
        if isinstance(place, _Match):
            return tuple(following), True
        if kind is not None and kind[place.points]:
            following[place.then] = None
    return tuple(following), False


def _reach(
    places: Sequence[_Take | _Look | _Split | _Match], state: Sequence[int], kind: Points | None
) -> Iterator[_Take | _Match]:
    """Yield what a state may take, or that it matches, in the order in which it is tried."""
    seen: set[int] = set()
    stack = list(reversed(state))
    while stack:
        at = stack.pop()
        if at in seen:
            continue
        seen.add(at)
        place = places[at]
        if isinstance(place, _Split):
            stack += (place.second, place.first)
        elif isinstance(place, _Look):
            if (kind is not None and bool(kind[place.points])) == place.is_wanted:
                stack.append(place.then)
        else:
            yield place


def _in_pages(class_of: NDArray[np.uint8]) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """Spread classes of `POINTS` over all code points, in pages of 256, each page once."""
    counts = np.diff(np.append(POINTS, LAST_POINT + 1))
    whole = np.repeat(class_of, counts).reshape(-1, 256)
    rows = [row.tobytes() for row in whole]
    pages = {row: number for number, row in enumerate(sorted(set(rows)))}
    page_of = np.array([pages[row] for row in rows], dtype=np.uint16)
    return page_of, np.frombuffer(b"".join(pages), dtype=np.uint8)
