"""Read dataclasses from TOML tables whose every value names its source.

A value is written `key = { value = 16384, source = "CL query, Adreno 750, driver E031.45" }`.
What many values share is written once, under `[sources]`, and cited: `clinfo = "..."` there and
`source = "@clinfo"`, or `source = "@clinfo: in MB"`, at the values.  One that was fitted is a table
`[sources.NAME]` of `text`, `date` and `command`.

The fields of the dataclass say which keys there are and of which type.
"""

import dataclasses
import datetime
import re
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from adrenoc.base.errors import TargetError
from adrenoc.base.files.read import parse_toml, read_toml
from adrenoc.base.text.json_text import fits, plain_type, types_of
from adrenoc.base.text.spelling import did_you_mean

T = TypeVar("T")

LEAST, MOST, MOST_ITEMS = 1e-9, 10**15, 32
"""Of any number and of any list: nothing that is worked out from such overflows."""
_MOST_SHOWN = 200

_SHAPES = {
    int: "a whole number above 0, up to 10^15",
    float: "a number above 0, from 10^-9 to 10^15",
    bool: "true or false",
    str: "a text that is not empty",
    tuple: f"a list of whole numbers above 0, {MOST_ITEMS} at most",
}


class SourcedFile:
    """One TOML file, with the sources that were met while its values were read."""

    def __init__(self, path: Path, *, text: str | None = None, device: str = "") -> None:
        """Parse `path`, or the `text` that was read from it; `adrenoc targets DEVICE` shows it."""
        self.path = path
        self.sources: dict[str, str] = {}
        self._hint = f"correct {path}, then: adrenoc targets {device}".rstrip()
        try:
            self.tables = read_toml(path) if text is None else parse_toml(text)
        except OSError as error:
            raise TargetError(
                f"cannot read the target file {path}: {error.strerror}", hint="adrenoc targets"
            ) from error
        except ValueError as error:
            raise TargetError(f"{path} is not a TOML file: {error}", hint=self._hint) from error

    def wrong(self, key: str, seen: str, expected: str) -> TargetError:
        """Return an error about one key of this file."""
        return TargetError(
            f'{self.path}, key "{_short(key)}": {_short(seen)}, expected {expected}',
            hint=self._hint,
        )

    def check_keys(self, table: Mapping[str, Any], known: set[str], section: str = "") -> None:
        """Refuse keys that mean nothing."""
        for key in table:
            if key not in known:
                guess = did_you_mean(key, known)
                expected = "one of " + ", ".join(sorted(known))
                raise self.wrong(_join_key(section, key), f"unknown key{guess}", expected)

    def text(self, table: Mapping[str, Any], key: str, section: str = "") -> str:
        """Return a text that needs no source, because it is a name or a source itself."""
        value = table.get(key)
        if not isinstance(value, str) or not value.strip():
            seen = "missing" if value is None else f"seen {value!r}"
            raise self.wrong(_join_key(section, key), seen, _SHAPES[str])
        return value

    def table(self, section: str) -> dict[str, Any]:
        """Return the table `[section]`, or `[outer.section]`; empty where there is none."""
        value: Any = self.tables
        for part in section.split("."):
            value = value.get(part, {})
            if not isinstance(value, dict):
                raise self.wrong(section, f"seen {value!r}", f"a table [{section}]")
        return value

    def value(self, table: Mapping[str, Any], key: str, hint: Any, section: str = "") -> Any:
        """Read one sourced value of the type `hint`, and note its source."""
        name = _join_key(section, key)
        if key not in table:
            raise self.wrong(name, "missing", "{ value = ..., source = ... }")
        entry = table[key]
        if not isinstance(entry, dict) or "value" not in entry:
            raise self.wrong(name, f"seen {entry!r}", "{ value = ..., source = ... }")
        self.check_keys(entry, {"value", "source"}, name)
        if "source" not in entry:
            raise self.wrong(name, "the value has no source", 'source = "where it is known from"')
        source = self.write_out_citations(self.text(entry, "source", name), f"{name}.source")
        value = self._convert(entry["value"], hint, name)
        self.sources[name] = source
        return value

    def write_out_citations(self, source: str, name: str) -> str:
        """Write out the `@key` citations of `[sources]` in a source."""
        known = self.table("sources")

        def write_out(match: re.Match[str]) -> str:
            key = match.group(1)
            if key not in known:
                guess = did_you_mean(key, known)
                raise self.wrong(name, f'seen "@{key}"{guess}', "a key of the table [sources]")
            if isinstance(known[key], dict):
                return self._format_dated(known[key], f"sources.{key}")
            return self.text(known, key, "sources")

        return re.sub(r"@(\w+)", write_out, source)

    def _format_dated(self, source: dict[str, Any], name: str) -> str:
        """Return a source that tells when, and by which command, as one text."""
        self.check_keys(source, {"text", "date", "command"}, name)
        parts = [self.text(source, "text", name)]
        if "date" in source:
            if type(source["date"]) is not datetime.date:
                raise self.wrong(f"{name}.date", f"seen {source['date']!r}", "a date: 2026-11-21")
            parts.append(source["date"].isoformat())
        if "command" in source:
            parts.append(self.text(source, "command", name))
        return "; ".join(parts)

    def facts(self, cls: type[T], section: str, base: T | None = None) -> T:
        """Read the table `[section]` into the dataclass `cls`, over what `base` has."""
        values = self.read_stated(cls, section)
        if base is not None:
            return dataclasses.replace(base, **values)  # type: ignore[type-var]
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            if field.name not in values and field.default is dataclasses.MISSING:
                expected = "{ value = ..., source = ... }"
                raise self.wrong(_join_key(section, field.name), "missing", expected)
        return cls(**values)

    def read_stated(self, cls: type, section: str) -> dict[str, Any]:
        """Return the values that the table `[section]` has for the dataclass `cls`, all or some."""
        table = self.table(section)
        fields = dataclasses.fields(cls)
        keys = {field.name for field in fields if not field.metadata.get("derived")}
        self.check_keys(table, keys, section)
        hints = types_of(cls) if table else {}
        return {key: self.value(table, key, hints[key], section) for key in table}

    def _convert(self, value: Any, hint: Any, name: str) -> Any:
        hint = plain_type(hint)
        kind = typing.get_origin(hint) or hint
        if kind is tuple:
            several = isinstance(value, list) and 0 < len(value) <= MOST_ITEMS
            good = several and all(map(_is_count, value))
        elif kind is float:
            good = fits(float, value) and LEAST <= value <= MOST
        elif kind is str:
            good = fits(str, value) and bool(value.strip())
        else:
            good = _is_count(value) if kind is int else fits(kind, value)
        if not good:
            raise self.wrong(name, f"seen {value!r}", _SHAPES[kind])
        return kind(value)


def _is_count(value: object) -> bool:
    return fits(int, value) and 0 < value <= MOST  # type: ignore[operator]


def _short(text: str) -> str:
    """Return what a file says, as far as a sentence has room for it."""
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _join_key(section: str, key: str) -> str:
    return f"{section}.{key}" if section else key
