"""Run the operator cases of TVM 0.18 at their full sizes on emulated OpenCL ML.

The tests take smaller planes where a case takes seconds.  Prints a line for each of TVM's tests:
its parameter sets, and the largest error in float32 and float16 beside what TVM allows.
"""

from __future__ import annotations

import sys


def main() -> int:
    import tvm
    import tvm_ffi

    from adrenoc import native
    from tests.clml.upstream_v018 import COUNTS, TRIALS, compare

    native.use_software_device()
    native.load()
    tvm_ffi.get_global_func("adrenoc.clml.emulate")('{"versions": [1, 2, 3, 4, 5]}')
    device, failed = tvm.opencl(0), False
    print("| test | cases | float32 | allowed | float16 | allowed |\n|---|---|---|---|---|---|")
    for test in COUNTS:
        trials = [trial for trial in TRIALS if trial.test == test and trial.offloaded]
        errors: list[dict[str, float]] = []
        for trial in trials:
            try:
                errors.append(compare(trial, device, trial.case.inputs))
            except AssertionError as error:
                failed = True
                print(f"{trial.id}: {error}", file=sys.stderr)
        worst = [max(e[dtype] for e in errors) for dtype in ("float32", "float16")]
        single, half = max(t.single for t in trials), max(t.half for t in trials)
        cells = (f"{worst[0]:.1e}", f"{single:.0e}", f"{worst[1]:.1e}", f"{half:.0e}")
        print(f"| {test} | {len(errors)} | {' | '.join(cells)} |", flush=True)
    return int(failed)
