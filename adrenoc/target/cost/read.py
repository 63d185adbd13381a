"""Read a cost table of `targets/cost/`: its own values over those of the table that it builds on.

A file `NAME.toml` has a `title`, a `base` (the name of another file, or none), `[sources]`, and a
table for each family with values as in every target file.  A GPU's file names one as its base, and
may have values of its own, which is what measurements on one device end in:

    [cost]
    base = "a7xx"

    [cost.conv_local]
    k_step_slots = { value = 41.0, source = "fitted to an Adreno 750, driver E031.45, 2026-12-01" }
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from adrenoc.base.text.spelling import did_you_mean
from adrenoc.target.cost.cost import Cost
from adrenoc.target.sourced import SourcedFile

UNKNOWN = "unknown"
"""The table of GPUs whose files name none."""
HEADER = {"title", "base", "sources"}
_AND_OWN = " and its own"
"""Of the name of a table that a GPU's own file has values over."""

NO_COSTS = ("most_", "alike_share")
"""How keys begin that bound what is tried."""

Stated = dict[str, dict[str, Any]]
"""Family -> key -> value."""


@cache
def families() -> Mapping[str, type]:
    """Return the record of each table."""
    hints: dict[str, type] = typing.get_type_hints(Cost)
    return {name: kind for name, kind in hints.items() if kind is not str}


class CostTables:
    """The cost files of one folder of targets, each read at most once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "cost"
        self._known: dict[str, tuple[Stated, dict[str, str], str]] = {}

    @property
    def names(self) -> list[str]:
        """Files that a GPU can name."""
        return sorted(path.stem for path in self._folder.glob("*.toml"))

    def read_file(
        self, file: SourcedFile, under: tuple[Cost, dict[str, str]] | None = None
    ) -> tuple[Cost, dict[str, str]]:
        """Return the constants of a GPU by its file, with their sources by "cost.FAMILY.KEY".

        `under` are those of the device that the file builds on, where it names no table itself.

        Raises:
            TargetError: a name, a key or a value of any of the files is wrong.
        """
        own = file.table("cost")
        file.check_keys(own, {"base", *families()}, "cost")
        if under is not None and "base" not in own:
            return _overlay(file, *under)
        base = file.text(own, "base", "cost") if "base" in own else UNKNOWN
        stated, sources, name = self._read_based(file, "cost.base", base, within="cost")
        return _make_cost(file, name, stated), {
            f"cost.{key}": text for key, text in sources.items()
        }

    def read_named(self, name: str) -> tuple[Cost, dict[str, str]]:
        """Return the constants of a file of this folder, with their sources."""
        file = self._file(name)
        stated, sources, _ = self._read_stated(name, ())
        return _make_cost(file, name, stated), {
            f"cost.{key}": text for key, text in sources.items()
        }

    def _file(self, name: str) -> SourcedFile:
        file = SourcedFile(self._folder / f"{name}.toml")
        file.check_keys(file.tables, HEADER | set(families()))
        file.text(file.tables, "title")
        return file

    def _read_stated(self, name: str, above: tuple[str, ...]) -> tuple[Stated, dict[str, str], str]:
        """All that a file and its bases state; `above` are the files that build on it."""
        if name not in self._known:
            file = self._file(name)
            base = file.text(file.tables, "base") if "base" in file.tables else None
            if base in (*above, name):
                raise file.wrong("base", f"seen {base!r}", "a file that does not build on this one")
            known = self._read_based(file, "base", base, above=(*above, name))
            _make_cost(file, name, known[0])  # whoever builds on it finds all keys
            self._known[name] = known
        stated, sources, _ = self._known[name]
        return stated, sources, name

    def _read_based(
        self,
        file: SourcedFile,
        key: str,
        base: str | None,
        *,
        within: str = "",
        above: tuple[str, ...] = (),
    ) -> tuple[Stated, dict[str, str], str]:
        """Return what `base` states, with the file's own values over it."""
        stated: Stated = {}
        sources: dict[str, str] = {}
        name = file.path.stem
        if base is not None:
            if base not in self.names:
                guess = did_you_mean(base, self.names)
                expected = "one of " + ", ".join(self.names)
                raise file.wrong(key, f"seen {base!r}{guess}", expected)
            under, texts, name = self._read_stated(base, above)
            stated = {family: dict(values) for family, values in under.items()}
            sources = dict(texts)
        own = False
        for family, values, texts in _own_values(file, within):
            stated.setdefault(family, {}).update(values)
            sources.update(texts)
            own = own or bool(values)
        return stated, sources, f"{name}{_AND_OWN}" if within and own else name


def _overlay(file: SourcedFile, cost: Cost, sources: dict[str, str]) -> tuple[Cost, dict[str, str]]:
    """Constants with the file's own values in their place."""
    tables: dict[str, Any] = {}
    sources = dict(sources)
    for family, values, texts in _own_values(file, "cost"):
        if values:
            tables[family] = dataclasses.replace(getattr(cost, family), **values)
            sources.update({f"cost.{key}": text for key, text in texts.items()})
    name = f"{cost.name.removesuffix(_AND_OWN)}{_AND_OWN}" if tables else cost.name
    return dataclasses.replace(cost, name=name, **tables), sources


def _own_values(
    file: SourcedFile, within: str
) -> Iterator[tuple[str, dict[str, Any], dict[str, str]]]:
    """Yield the values that a file has itself, family by family."""
    for family, record in families().items():
        section = f"{within}.{family}" if within else family
        values = file.read_stated(record, section)
        yield (
            family,
            values,
            {f"{family}.{key}": file.sources.pop(f"{section}.{key}") for key in values},
        )


def _make_cost(file: SourcedFile, name: str, stated: Stated) -> Cost:
    """Return the record; every key has a value."""
    tables = {}
    for family, record in families().items():
        values = stated.get(family, {})
        for field in dataclasses.fields(record):
            if field.name not in values:
                expected = "{ value = ..., source = ... } here or in its base"
                raise file.wrong(f"{family}.{field.name}", "missing", expected)
        tables[family] = record(**values)
    return Cost(name=name, **tables)
