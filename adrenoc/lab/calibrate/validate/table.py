"""The layers that are measured: the rows of `targets/validation.toml`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from adrenoc.base.files.read import data_folder, read_toml
from adrenoc.lab.calibrate.validate.layer import Layer


@dataclass(frozen=True, kw_only=True)
class LayerRow:
    """A layer with what is told of it.

    `join` is what the cost model decides about it (`JOINS` of `forms.py`), empty for nothing.
    `kernels` are the families whose schedules count; all that have schedules where it is empty.
    """

    layer: Layer
    family: str
    join: str = ""
    kept_out: bool = False
    """Whether no constant is fitted to it."""
    kernels: tuple[str, ...] = ()


def layer_rows() -> tuple[LayerRow, ...]:
    """All rows, in the order of the file."""
    table = read_toml(data_folder("targets") / "validation.toml")
    return tuple(_row(fields) for fields in table["layers"])


def _row(fields: Mapping[str, Any]) -> LayerRow:
    known = dict(fields)
    layer = Layer(
        name=known.pop("name"),
        op=known.pop("op"),
        shape=tuple(known.pop("shape")),
        weights=tuple(known.pop("weights", ())),
        attrs=known.pop("attrs", {}),
        given=known.pop("given", False),
    )
    kernels = tuple(known.pop("kernels", ()))
    return LayerRow(layer=layer, kernels=kernels, **known)


def families_in_turn(rows: Sequence[LayerRow]) -> tuple[LayerRow, ...]:
    """The first layer of each family, then the second ones, so that little time reaches all."""
    seen: Counter[str] = Counter()
    places = []
    for row in rows:
        places.append(seen[row.family])
        seen[row.family] += 1
    return tuple(row for _, row in sorted(zip(places, rows, strict=True), key=itemgetter(0)))


def wanted_rows(only: tuple[str, ...]) -> tuple[LayerRow, ...]:
    """The rows whose names or families hold one of these parts; all where there is none."""
    rows = layer_rows()
    if not only:
        return rows
    return tuple(r for r in rows if any(part in f"{r.family}: {r.layer.name}" for part in only))
