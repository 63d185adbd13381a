"""JSON that others wrote, read with every way of failing as one kind of error, and dataclasses out
of what it or TOML holds: each value of its field's type, no key unknown.

A field's metadata may mark it: `named` as a name of one kind, `{"json": False}` as none of the
file's, `{"default": True}` as one that the file may leave out.
"""

import json
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from adrenoc.base.text import names
from adrenoc.base.text.spelling import did_you_mean

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


_MOST_DEPTH = 64
_MOST_DIGITS = 19


def read_json(text: str | bytes) -> Any:
    """Return the value that a JSON text holds. Raises ValueError where it is not UTF-8, not JSON,
    nested too deeply, or holds a number that is too long or half a character; the reason is one
    line."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"not UTF-8 text: byte {error.start} is wrong") from error
    try:
        value = json.loads(text, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno}") from error
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_depth(value)
    if _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError("it holds half of a character (a lone surrogate)") from error
    return value


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"it holds a number of {len(digits)} digits")
    return int(digits)


def _check_depth(value: Any) -> None:
    """Refuse what readers that call themselves could not walk."""
    level = [value]
    for _ in range(_MOST_DEPTH):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return
    raise ValueError("it is nested too deeply")


Wrong = Callable[[str, str], Exception]
"""(place, what is wrong there) -> the error to raise: ("a.b[3]", "is 7, expected text")."""

_NAMES = "names"
_ROOT = ": "  # between a file and the keys in it
_WORDS = {str: "text", int: "an integer", bool: "true or false", float: "a finite number"}
_MOST_SHOWN = 40


def mark_name(kind: names.NameRule) -> dict[str, Any]:
    """Return what marks a field, or each item of one, as a name of this kind."""
    return {_NAMES: kind}


@cache
def types_of(cls: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields, worked out once: each command reads all GPUs."""
    return typing.get_type_hints(cls)


def plain_type(hint: Any) -> Any:
    """Return the type behind `int | None` and the like."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return next(part for part in typing.get_args(hint) if part is not types.NoneType)
    return hint


def fits(kind: type, value: object) -> bool:
    """Return whether a parsed value is of this type; a bool is no int to a schema."""
    if kind is float:
        return fits(int, value) or (isinstance(value, float) and math.isfinite(value))
    return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)


class RecordReader:
    """Reads dataclasses; `wrong` makes the errors. With `defaults` a key may be missing wherever
    the field has a default."""

    def __init__(self, wrong: Wrong, *, defaults: bool = False) -> None:
        self._wrong, self._defaults = wrong, defaults

    def read(self, kind: Any, plain: Any, where: str) -> Any:
        """Return the dataclass `kind` of the file `where`, which has all its keys and no other."""
        return self._value(kind, plain, where + _ROOT)

    def _value(self, hint: Any, plain: Any, where: str) -> Any:
        kind = plain_type(hint)
        if plain is None and kind is not hint:
            return None
        origin = typing.get_origin(kind)
        if is_dataclass(kind):
            return self._fields(kind, plain, where)
        if origin is tuple:
            self._expect(isinstance(plain, list), plain, "a list", where)
            item = typing.get_args(kind)[0]
            return tuple(self._value(item, one, f"{where}[{i}]") for i, one in enumerate(plain))
        if origin in (dict, Mapping):
            self._expect(isinstance(plain, dict), plain, "an object", where)
            item = typing.get_args(kind)[1]
            return {key: self._value(item, one, _join(where, key)) for key, one in plain.items()}
        if isinstance(kind, type) and issubclass(kind, Enum):
            known = [member.value for member in kind]
            self._expect(plain in known, plain, f"one of {', '.join(known)}", where)
            return kind(plain)
        if kind is not Any:
            self._expect(fits(kind, plain), plain, _WORDS[kind], where)
        return float(plain) if kind is float else plain

    def _fields(self, kind: Any, plain: Any, where: str) -> Any:
        self._expect(isinstance(plain, dict), plain, "an object", where)
        wanted = [f for f in fields(kind) if f.metadata.get("json", True)]
        for item in wanted:
            default = item.default is not MISSING or item.default_factory is not MISSING
            optional = item.metadata.get("default") or (self._defaults and default)
            if item.name not in plain and not optional:
                raise self._wrong(_format_place(where), f"lacks the key `{item.name}`")
        unknown = sorted(set(plain) - {item.name for item in wanted})
        if unknown:
            known = [item.name for item in wanted]
            guess = did_you_mean(unknown[0], known)
            raise self._wrong(_format_place(where), f"has an unknown key `{unknown[0]}`{guess}")
        values = {}
        for item in wanted:
            if item.name in plain:
                place = _join(where, item.name)
                values[item.name] = self._value(types_of(kind)[item.name], plain[item.name], place)
                if _NAMES in item.metadata:
                    self._check_name(item.metadata[_NAMES], values[item.name], place)
        return kind(**values)

    def _check_name(self, allowed: names.NameRule, value: Any, where: str) -> None:
        if isinstance(value, tuple):
            for i, one in enumerate(value):
                self._check_name(allowed, one, f"{where}[{i}]")
            return
        self._expect(allowed.allows(value), value, allowed.expected, where)

    def _expect(self, good: bool, seen: Any, expected: str, where: str) -> None:
        if not good:
            shown = json.dumps(seen, default=str)  # TOML has dates, too
            shown = shown if len(shown) <= _MOST_SHOWN else shown[: _MOST_SHOWN - 3] + "..."
            raise self._wrong(_format_place(where), f"is {shown}, expected {expected}")


def _join(where: str, key: str) -> str:
    return f"{where}{'' if where.endswith(_ROOT) else '.'}{key}"


def _format_place(where: str) -> str:
    return where.removesuffix(_ROOT)
