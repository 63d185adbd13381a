"""The table of what CLML computes: one row an operator family, read from `targets/clml.toml`.

The matchers (`adrenoc.clml.match`) find operators and build the graph's node; whether a row may
be used at all (interface version, dtypes, limits) is data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from adrenoc.base.errors import OptionError
from adrenoc.base.files.read import data_folder, read_toml
from adrenoc.base.text.spelling import quote_word


@dataclass(frozen=True, kw_only=True)
class Row:
    """One operator family and its limits.

    `version` is the first interface that has it.  `gain` is the time of a texture kernel over that
    of CLML for the same operator, in float32 and in float16, `pointwise_gain` the same for windows
    of one element.  `source` tells where all are from.
    """

    name: str
    operators: tuple[str, ...]
    version: int
    dtypes: tuple[str, ...]
    max_rank: int
    max_batch: int
    max_extent: int
    gain: tuple[float, float]
    source: str
    pointwise_gain: tuple[float, float] | None = None

    def gain_of(self, dtype: str, *, pointwise: bool) -> float:
        """Return the gain of one operator."""
        pair = self.pointwise_gain if pointwise and self.pointwise_gain is not None else self.gain
        return pair[dtype == "float16"]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What the cost model reckons with.

    `gflops` and `gb_per_s` stand in for a target that does not tell, `efficiency` is the part of
    the peak that a good kernel reaches.  An operator of a recording takes `recorded_us`, a launch
    what the target tells.  CLML has to be `margin` times faster.  `sources` says of each where it
    is from.
    """

    gflops: float
    gb_per_s: float
    efficiency: float
    recorded_us: float
    margin: float
    default_version: int
    sources: Mapping[str, str]


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
        return Table(rows=rows, costs=_costs(data["costs"], data["sources"]))
    except (KeyError, TypeError) as error:
        raise OptionError(
            f"{path}: {error}",
            hint=f"correct {quote_word(path)} after the rows beside the wrong one",
        ) from error


def _costs(entries: dict[str, Any], shared: Mapping[str, str]) -> Costs:
    sources = {}
    for key, entry in entries.items():
        cited, _, rest = entry["source"].partition(":")
        whole = cited.startswith("@")
        sources[key] = f"{shared[cited[1:]]}:{rest}" if whole else entry["source"]
    return Costs(**{key: entry["value"] for key, entry in entries.items()}, sources=sources)


def _row(name: str, values: dict[str, Any]) -> Row:
    for key in ("operators", "dtypes", "gain", "pointwise_gain"):
        if key in values:
            values[key] = tuple(values[key])
    return Row(name=name, **values)
