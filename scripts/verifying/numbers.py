"""Hold numbers against right values, where halves and floats lose most: verify numbers ...

    scripts/verify numbers                   100 of each kind, drawn: origins x ranges x operators
    scripts/verify numbers --kinds norms --count 20 --seed 3
    scripts/verify numbers --cases FOLDER    NAME.onnx or NAME.tflite, NAME.npz, NAME.expected.npz

Each model is compiled for the software OpenCL device under each preset and run; each number is
compared with the right one.  A deviation is a share of the output's range: 1e-4 is allowed in fp32,
1e-2 elsewhere.  Numbers that no float can have within that (found by rounding each result of a
computation in doubles to the nearest float, and up or down at random, those of functions by as many
steps as OpenCL C allows) are excused one by one, and counted.  What is refused
is not wrong; what is wrong without a word makes the exit code 1.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from adrenoc.base.errors import AdrenocError
from adrenoc.cli import console
from scripts.verifying.judge_numbers import BARS, Arrays, Verdict, find_spread, judge
from scripts.verifying.number_kinds import KINDS, draw_cases
from tests.host.random_graphs.exact import in_doubles
from tests.onnx_backend.execute import Outcome, compute, refusal
from tests.onnx_backend.pool import run_cases

TOGETHER = 10
"""Graphs of a model."""
SUFFIXES = (".onnx", ".tflite")
COLUMNS = ("case", "preset", "deviation", "excused", "verdict", "")
WRONG, RIGHT, REFUSED = "wrong", "right", "refused"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model with its right values, and how far a float may be from each."""

    name: str
    file_name: str
    model: bytes
    inputs: Arrays
    right: Arrays
    spread: Arrays
    about: dict[str, str] = field(default_factory=dict)
    """What each drawn graph is, by the name that its outputs begin with."""
    excluded: str = ""

    @property
    def operator(self) -> str:
        """What it tests."""
        return self.name

    def difference(self, seen: Arrays) -> str:
        """Nothing: numbers are judged apart."""
        return ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A case under a preset."""

    case: Case
    preset: str


@dataclass(frozen=True, kw_only=True)
class Computed(Outcome):
    """What came of a run: its outputs, where it was not refused."""

    outputs: Arrays


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one output gave, or one model where it is refused."""

    case: str
    preset: str
    verdict: str
    deviation: float | None = None
    excused: int = 0
    said: str = ""


def main() -> int:
    """Run and judge; the exit code is 1 if a number is wrong without a word."""
    options = parse()
    presets = options.presets.split(",")
    if options.cases is not None:
        cases = read_cases(options.cases, options.match)
    else:
        kinds = options.kinds.split(",")
        cases = [c for kind in kinds for c in draw_kind(kind, options.count, options.seed)]
    rows = run_all(cases, presets, jobs=options.jobs)
    show(rows if options.all else [row for row in rows if row.verdict != RIGHT])
    print(summary(rows))
    if options.output is not None:
        write(rows, options.output)
    return 1 if any(row.verdict == WRONG for row in rows) else 0


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=Path, metavar="FOLDER", help="models with right values")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"({','.join(KINDS)})")
    parser.add_argument("--count", type=int, default=100, help="drawn of each kind (100)")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (0)")
    parser.add_argument("--all", action="store_true", help="list what is right, too")
    parser.add_argument("--presets", default=",".join(BARS), help="(fp32,mixed,fp16)")
    parser.add_argument("--match", default="", help="only cases whose name holds this")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the table there")
    return parser.parse_args()


def read_cases(folder: Path, match: str = "") -> list[Case]:
    """The models of a folder that have inputs beside them.

    Where right values are missing those of onnxruntime or LiteRT are taken.
    """
    models = sorted(p for p in folder.iterdir() if p.suffix in SUFFIXES and match in p.stem)
    return [read_case(path) for path in models if path.with_suffix(".npz").is_file()]


def read_case(path: Path) -> Case:
    """One model with what lies beside it."""
    inputs = read_arrays(path.with_suffix(".npz"))
    stored = path.with_suffix(".expected.npz")
    right = read_arrays(stored) if stored.is_file() else run_reference(path, inputs)
    spread = find_spread(onnx.load(path), inputs) if path.suffix == ".onnx" else {}
    return Case(
        name=path.stem,
        file_name=path.name,
        model=path.read_bytes(),
        inputs=inputs,
        right=right,
        spread=spread,
    )


def draw_kind(kind: str, count: int, seed: int) -> list[Case]:
    """Draw graphs of a kind; some of them side by side in a model, which takes less time."""
    cases = []
    for first in range(0, count, TOGETHER):
        numbers = range(first, min(first + TOGETHER, count))
        parts, about = draw_cases(kind, numbers, seed)
        model = parts.model()
        right = in_doubles(model, parts.inputs)
        if right is None:
            raise ValueError(f"onnx's reference cannot compute {kind} {numbers}")
        cases.append(
            Case(
                name=f"{kind} {numbers.start}..{numbers.stop - 1}",
                file_name="drawn.onnx",
                model=model.SerializeToString(),
                inputs=parts.inputs,
                right=right,
                spread=find_spread(model, parts.inputs, ruled=parts.ruled),
                about=about,
            )
        )
    return cases


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name."""
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def run_reference(path: Path, inputs: Arrays) -> Arrays:
    """What onnxruntime or LiteRT gives; nothing where it cannot compute the model."""
    from adrenoc.check import reference

    try:
        return reference.run_reference(path, inputs)
    except AdrenocError:
        return {}


def run_all(cases: Sequence[Case], presets: Sequence[str], *, jobs: int) -> list[Row]:
    """All cases under all presets, in their order."""
    rows: dict[tuple[str, str], list[Row]] = {}

    def done(run: Run, outcome: Outcome) -> None:
        judged = rows[run.case.name, run.preset] = judge_run(run, outcome)
        for row in judged:
            if row.verdict != RIGHT:
                print(*cells(row), sep="  ", flush=True)

    runs = [Run(case=case, preset=preset) for case in cases for preset in presets]
    started = time.monotonic()
    run_cases(runs, jobs=jobs, done=done, work=compute_run, limit_s=600.0)
    print(f"{len(runs)} runs in {time.monotonic() - started:.0f} s")
    return [row for run in runs for row in rows[run.case.name, run.preset]]


def compute_run(run: Run) -> Outcome:
    """Compile and run one case; every exception becomes an outcome."""
    try:
        outputs, places = compute(run.case, run.preset)
    except Exception as error:  # noqa: BLE001 - what any of these says belongs into the table
        return refusal(run.case, error)
    return Computed(status="passed", places=places, outputs=outputs)


def judge_run(run: Run, outcome: Outcome) -> list[Row]:
    """A row for each output that has right values."""
    known = {"case": run.case.name, "preset": run.preset}
    if not isinstance(outcome, Computed):
        return [Row(**known, verdict=outcome.status, said=outcome.detail)]
    if not run.case.right:
        return [Row(**known, verdict="unknown", said="no right values beside it")]
    rows = []
    for name, right in run.case.right.items():
        seen = outcome.outputs.get(name)
        if seen is None:
            found = Verdict(deviation=np.inf, said=f"no output {name}")
        else:
            found = judge(seen, right, run.case.spread.get(name), BARS[run.preset])
        is_right = found.is_right(run.preset)
        row = Row(
            case=f"{run.case.name} {name}",
            preset=run.preset,
            verdict=RIGHT if is_right else WRONG,
            deviation=found.deviation,
            excused=found.excused,
            said="; ".join(filter(None, (found.said, _about(run.case, name)))),
        )
        rows.append(row)
    return rows


def _about(case: Case, output: str) -> str:
    """What a drawn graph is."""
    return next(
        (said for name, said in case.about.items() if output.split(".", maxsplit=1)[0] == name), ""
    )


def cells(row: Row) -> tuple[str, ...]:
    """A row as text, in the order of COLUMNS."""
    deviation = "-" if row.deviation is None else f"{row.deviation:.1e}"
    return (row.case, row.preset, deviation, str(row.excused or ""), row.verdict, row.said)


def show(rows: Sequence[Row]) -> None:
    """What is not right, and how many are."""
    console.print_table(COLUMNS, [cells(row) for row in rows], right=COLUMNS[2:4])


def summary(rows: Sequence[Row]) -> str:
    """Verdicts by preset."""
    lines = []
    for preset in dict.fromkeys(row.preset for row in rows):
        count = Counter(row.verdict for row in rows if row.preset == preset)
        said = ", ".join(f"{number} {verdict}" for verdict, number in sorted(count.items()))
        lines.append(f"{preset}: {said}")
    return "\n".join(lines)


def write(rows: Sequence[Row], path: Path) -> None:
    """The table as text, with tabs."""
    lines = ["\t".join(COLUMNS), *("\t".join(cells(row)) for row in rows), summary(rows)]
    path.write_text("\n".join(lines) + "\n")
