"""LiteRT's published times beside what networks are estimated to take: measured, then modelled.

A row of `published/times.tsv` is a network that Google has timed on an Adreno 830; equivalents with
seeded weights come from `scripts/make_board.py`, their estimates from `scripts/estimate_networks
--json`. A sum is kernels and launches one after the other: no time of anybody's phone.
"""

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "published"
MEASURED_GPU = "830"
HEAD = (
    "| network | LiteRT, 830, ms (measured) | 5 to 95 % | its launches (planned) | ours on "
    "| preset | launches (planned) | ms (modelled) | if width costs nothing | over LiteRT's |"
)

Row = dict[str, str]
Estimate = dict[str, Any]


def print_board(estimates: Sequence[Path]) -> None:
    """Print the table: every published network, those without an estimate too."""
    times, launches = _read("times.tsv"), _read("launches.tsv")
    ours = [row for path in estimates for row in json.loads(path.read_text())]
    print(HEAD, "|---" * HEAD.count(" | ") + "|---|", sep="\n")
    found: dict[str, list[float]] = {}
    for row in times:
        if row["gpu"] != MEASURED_GPU:
            continue
        theirs = [one for one in launches if one["network"] == row["network"]]
        count = sum(int(one["launches"]) for one in theirs if one["gpu"] == MEASURED_GPU)
        spread = "" if row["low_ms"] == "-" else f"{row['low_ms']} to {row['high_ms']}"
        on_gpu = _all_on_gpu(row)
        start = f"| {row['network']} | {row['ms']}{on_gpu} | {spread} | {count or ''}"
        of_it = [one for one in ours if one["model"] == row["network"]]
        for one in of_it:
            print(f"{start} | {_cells(one, row, found)} |")
        if not of_it:
            print(f"{start} | no estimate | | | | | |")
    for name, ratios in sorted(found.items()):
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"\n{name}: {mean:.2f} of LiteRT's, geometric mean of {len(ratios)}")


def _read(name: str) -> list[Row]:
    with (FOLDER / name).open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def _all_on_gpu(row: Row) -> str:
    """What a time is of, where part of the network ran on the CPU."""
    if row["nodes"] in ("-", row["nodes_on_gpu"]):
        return ""
    return f" ({row['nodes_on_gpu']} of {row['nodes']} nodes on the GPU)"


def _cells(one: Estimate, row: Row, found: dict[str, list[float]]) -> str:
    """Ours on one GPU; on the GPU of the published time also over that, under both assumptions."""
    launch_ms = sum(one["counts"]) * one["launch_us"] / 1e3
    kernels = list(zip(one["counts"], one["kernels"], strict=True))
    wide = launch_ms + sum(count * kernel["est_ms"] for count, kernel in kernels)
    narrow = launch_ms + sum(count * kernel["narrow_ms"] for count, kernel in kernels)
    gpu = one["gpu"].removeprefix("a")
    shown = f"{gpu} | {one['preset']} | {sum(one['counts'])} | {wide:.2f} | {narrow:.2f}"
    if gpu != MEASURED_GPU:
        return f"{shown} | "
    ratios = [ms / float(row["ms"]) for ms in (wide, narrow)]
    if not _all_on_gpu(row):
        for ratio, said in zip(ratios, ("by width", "if width costs nothing"), strict=True):
            found.setdefault(f"{one['preset']}, {said}", []).append(ratio)
    return f"{shown} | {ratios[0]:.2f} / {ratios[1]:.2f}"
