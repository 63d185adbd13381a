"""The table of what CLML computes: one row an operator family, read from `targets/clml.toml`.

The matchers (`adrenoc.clml.match`) find operators and build the graph's node; whether a row may
be used at all (interface version, dtypes, limits) is data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from adrenoc.errors import OptionError
from adrenoc.files import data_folder, read_toml


@dataclass(frozen=True, kw_only=True)
class Row:
    """One operator family and its limits.

    `version` is the first interface that has it, `gain` the time of a texture kernel over that
    of CLML for the same operator (a guess of the cost model), `source` tells where both are from.
    """

    name: str
    operators: tuple[str, ...]
    version: int
    dtypes: tuple[str, ...]
    max_rank: int
    max_batch: int
    max_extent: int
    gain: float
    source: str


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Stand-ins of the cost model for a target that does not tell."""

    gflops: float
    gb_per_s: float
    efficiency: float
    launch_us: float
    recorded_us: float
    default_version: int
    default_version_source: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """All rows by name, and the figures of the cost model."""

    rows: dict[str, Row]
    costs: Costs

    def __getitem__(self, name: str) -> Row:
        return self.rows[name]


@cache
def load_table() -> Table:
    """Read `targets/clml.toml`.

    Raises:
        OptionError: the file lacks a key or has one too many.
    """
    path = data_folder("targets") / "clml.toml"
    data = read_toml(path)
    try:
        shared: dict[str, Any] = data["limits"]
        rows = {name: _row(name, {**shared, **row}) for name, row in data["rows"].items()}
        return Table(rows=rows, costs=Costs(**data["costs"]))
    except (KeyError, TypeError) as error:
        raise OptionError(
            f"{path}: {error}", hint=f"correct {path} after the rows beside the wrong one"
        ) from error


def _row(name: str, values: dict[str, Any]) -> Row:
    for key in ("operators", "dtypes"):
        values[key] = tuple(values[key])
    return Row(name=name, **values)
