"""Figures of a model's tensors as Model Explorer's node data, shown over the plain model file.

One figure is one file, since the tool names what it shows after the file: `NAME.json` becomes
`NAME.time_us.json` and so on.  A key is the name of a tensor that a node writes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adrenoc.base.files.outputs import check_file_can_be_written, write_atomically
from adrenoc.base.text.printable import printable_json

if TYPE_CHECKING:
    from adrenoc.check.accuracy.result import AccuracyReport
    from adrenoc.check.verdict import Verdict
    from adrenoc.device.result import RunResult

Figures = Mapping[str, Mapping[str, float | str]]
"""Values by tensor, by the name of the figure."""

_GRADIENT = ({"stop": 0, "bgColor": "#f1f5f9"}, {"stop": 1, "bgColor": "#dc2626"})
PLACE_COLOURS = {
    "texture": "#0f766e",
    "buffer": "#d97706",
    "cpu": "#b91c1c",
    "clml": "#6d28d9",
    "infinite": "#7f1d1d",
}
_TAKEN = "results"
"""A tensor of that name would be read as the table of another graph."""


def figures_of_check(verdict: Verdict) -> Figures:
    """Place, bytes and floor of the time of each node."""
    nodes = verdict.nodes
    return {
        "place": {node.tensor: node.place for node in nodes},
        "bytes": {node.tensor: node.bytes_read + node.bytes_written for node in nodes},
        "time_us": {n.tensor: n.time_us for n in nodes if n.time_us is not None},
    }


def figures_of_run(result: RunResult) -> Figures:
    """Measured time of each launch, at the tensor that it writes last."""
    times: dict[str, float] = {}
    shares: dict[str, float] = {}
    for node in result.nodes:
        name = node.tensors[-1] if node.tensors else node.node
        times[name] = times.get(name, 0.0) + node.time_ms * 1000
        if node.of_roofline is not None:
            shares[name] = node.of_roofline
    return {"measured_us": times, "of_roofline": shares}


def figures_of_accuracy(report: AccuracyReport) -> Figures:
    """What each layer adds to the error, and what the network up to it has come to."""
    found: dict[str, dict[str, float | str]] = {}
    for preset in report.presets:
        found[f"{preset.preset}.own_error"] = {x.name: x.local_error for x in preset.layers}
        found[f"{preset.preset}.error_so_far"] = {x.name: x.total_error for x in preset.layers}
    return found


def write_node_data(path: Path, figures: Figures) -> tuple[Path, ...]:
    """Write a file beside `path` for each figure that has values; the paths that were written.

    Raises:
        OutputError: one cannot be written; those are looked at before the first is.
    """
    files = {
        path.with_name(f"{path.name.removesuffix('.json')}.{name}.json"): values
        for name, values in figures.items()
        if values
    }
    for file in files:
        check_file_can_be_written(file)
    for file, values in files.items():
        write_atomically(file, node_data_json(values))
    return tuple(files)


def node_data_json(values: Mapping[str, float | str]) -> str:
    """One figure, of whichever graph is open."""
    results = {name: _result(value) for name, value in values.items() if name != _TAKEN}
    data: dict[str, Any] = {"results": results}
    if any(not isinstance(result["value"], str) for result in results.values()):
        data["gradient"] = _GRADIENT
    return printable_json(json.dumps(data, indent=1, ensure_ascii=False)) + "\n"


def _result(value: float | str) -> dict[str, Any]:
    if not isinstance(value, str) and not math.isfinite(value):
        value = "infinite"  # JSON has no word for it
    if isinstance(value, str):
        return {
            "value": value,
            **({"bgColor": PLACE_COLOURS[value]} if value in PLACE_COLOURS else {}),
        }
    return {"value": value}
