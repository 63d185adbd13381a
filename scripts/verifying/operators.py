"""Run a case of each operator on the software OpenCL device and compare with a checked-in table.

scripts/verify onnx-ops --jobs 2              all cases; fails where one differs from the table
scripts/verify onnx-ops --match softmax -v    some cases
scripts/verify onnx-ops --jobs 2 --update     write the table anew
"""

import argparse
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.onnx_backend.cases import load_cases
from tests.onnx_backend.execute import (
    TABLE,
    Case,
    Outcome,
    read_table,
    run_cases,
    summary,
    write_table,
)


def onnx_operators() -> int:
    """Run ONNX's own node tests, beside `tests/onnx_backend/status.json`."""
    about = "Run ONNX's node tests and compare with the checked-in table."
    makers = {name: lambda case=case: case for name, case in load_cases().items()}
    return compare_with_table(about, makers, TABLE)


def tflite_operators() -> int:
    """Run a model of each TFLite operator against LiteRT, beside `tests/tflite/status.json`."""
    from tests.tflite import cases

    about = "Run a model of each TFLite operator, compare with LiteRT and the checked-in table."
    makers = {name: recipe.case for name, recipe in cases.load_recipes().items()}
    return compare_with_table(about, makers, Path(cases.__file__).parent / "status.json")


def compare_with_table(about: str, makers: Mapping[str, Callable[[], Case]], path: Path) -> int:
    """Run the cases that the command line asks for; 1 where one differs from the table at `path`.

    `makers` has a function for each case by its name: to make one may take a while.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--match", default="", help="only cases whose name holds this expression")
    parser.add_argument("--status", default="", help="only cases that the table gives this status")
    parser.add_argument("--update", action="store_true", help="write what was seen to the table")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each case")
    options = parser.parse_args()
    table = read_table(path)
    cases = [
        make()
        for name, make in makers.items()
        if re.search(options.match, name) and table.get(name, "new").startswith(options.status)
    ]
    seen: dict[str, Outcome] = {}
    started = time.monotonic()

    def done(case: Case, outcome: Outcome) -> None:
        seen[case.name] = outcome
        if options.verbose:
            print(f"{case.name}: {outcome.line()}", flush=True)

    run_cases(cases, jobs=options.jobs, done=done)
    lines = {name: outcome.line() for name, outcome in seen.items()}
    changed = {name: line for name, line in lines.items() if table.get(name) != line}
    places = [sum(o.places[i] for o in seen.values()) for i in range(3)]
    print(summary({case.name: case for case in cases}, lines))
    print(f"nodes: {places[0]} in textures, {places[1]} in buffers, {places[2]} on the CPU")
    print(f"{len(seen)} cases in {time.monotonic() - started:.0f} s, {len(changed)} new or changed")
    if options.update:
        write_table({**table, **lines}, path)
        return 0
    for name, line in sorted(changed.items()):
        print(f"  {name}: {table.get(name, 'not in the table')} -> {line}")
    bad = Counter(outcome.status for outcome in seen.values())
    return 1 if changed or any(bad[s] for s in ("wrong", "error", "died", "timeout")) else 0
